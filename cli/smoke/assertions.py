"""The assertions of a smoke test: the expectation, the fix and the outcome of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from shared.safe_text import several_lines

Outcome = Literal["passed", "failed", "not_reached"]
MAX_SEEN_CHARS = 2000


@dataclass(frozen=True, kw_only=True)
class Assertion:
    """One assertion. ``docs/azure.md`` refers to it by its name."""

    name: str
    expected: str
    fix: str
    """What to do if it does not hold."""
    outcome: Outcome = "not_reached"
    seen: str = ""


ASSERTIONS = (
    Assertion(
        name="app_healthy",
        expected="GET /api/health answers healthy, or degraded because of another pipeline",
        fix="the app's log names the settings that are missing: `az webapp log tail`, or Application Insights",
    ),
    Assertion(
        name="pipeline_in_service",
        expected="the pipeline of dataset landfall-smoke is in service, on two nodes without GPUs",
        fix="deploy pipelines/smoke.yaml and the cluster landfall-smoke of pipelines/clusters.yaml: `azd up`",
    ),
    Assertion(
        name="storage_writable",
        expected="you can write to the data container",
        fix="give yourself the role Storage Blob Data Contributor on the container: put your object id into "
        "LANDFALL_DATA_OWNERS, then `azd up`. A new role may take an hour to take effect",
    ),
    Assertion(
        name="upload_event",
        expected="the event of an upload reaches the app, which says why it ignores a file that is not a shard",
        fix="compare the event subscription shard-uploaded and its delivery metrics with docs/operations.md; the "
        "system topic needs the role Storage Queue Data Message Sender on the queue",
    ),
    Assertion(
        name="upload_filter",
        expected="deleting that file sends no event to the app",
        fix="the subscription shard-uploaded must include Microsoft.Storage.BlobCreated only: `azd up` restores it",
    ),
    Assertion(
        name="shards_accepted",
        expected="both shards are accepted",
        fix="`landfall why` with the version's name shows the history of each shard",
    ),
    Assertion(
        name="job_submitted",
        expected="the last shard starts a run, whose job Azure ML accepts",
        fix="the run's reason names what was refused: a cluster, a role of the app, the code or the environment",
    ),
    Assertion(
        name="world_size",
        expected="the training report says 2 ranks",
        fix="the launcher starts too few: rebuild the image with Open MPI 4.1 (docs/operations.md)",
    ),
    Assertion(
        name="nodes",
        expected="the training report says 2 nodes, each a host of its own",
        fix="`mpirun` starts all ranks on one node: rebuild the image with Open MPI 4.1 (docs/operations.md)",
    ),
    Assertion(
        name="model_registered",
        expected="the run ends registered, with a version of the model landfall-smoke",
        fix="the run's reason says what the gate or Azure ML refused; `landfall run` shows the end of its log",
    ),
    Assertion(
        name="notification_sent",
        expected="every recipient of the pipeline is notified",
        fix="the app needs the role EventGrid Data Sender on the topic; the topic must take CloudEvents",
    ),
    Assertion(
        name="failure_class",
        expected=(
            "the run of the job that fails on purpose ends as failed, with failure class missing_file and no further "
            "attempt"
        ),
        fix="compare the run's reason with docs/attempts.md: the exit code of the training did not reach Azure ML",
    ),
    Assertion(
        name="failure_words",
        expected="the run's reason says that the pretrained weights do not exist",
        fix="`landfall why` with the run's id shows the evidence; people read this reason in their notification",
    ),
    Assertion(
        name="log_tail",
        expected="the end of the job's log is on record and says why the training ended",
        fix="the app needs the role Storage Blob Data Reader on the workspace's storage account (docs/security.md)",
    ),
    Assertion(
        name="cancellation",
        expected="canceling a running job ends its run as canceled, without a model",
        fix="`landfall run` shows the run's state; cancel the job in the studio, and look at the app's log",
    ),
    Assertion(
        name="end_events",
        expected="an event or the sweep has noticed the end of each run; the run's history says which",
        fix="where events are expected, compare the event subscription run-changed with docs/operations.md",
    ),
    Assertion(
        name="queue_encoding",
        expected="no message of this test is a dead letter: the host can decode what Event Grid writes",
        fix="`landfall dead-letters list` shows it with its error; host.json must say messageEncoding base64",
    ),
    Assertion(
        name="removed",
        expected="the uploads are removed and the model's version is archived",
        fix="the report names what stays and the command that removes it",
    ),
)


class Results:
    """The outcome of each assertion, in their order; each is printed as soon as it is known."""

    def __init__(self, say: Callable[[str], None], assertions: tuple[Assertion, ...] = ASSERTIONS) -> None:
        self._say = say
        self._assertions = {assertion.name: assertion for assertion in assertions}

    def __iter__(self) -> Iterator[Assertion]:
        """Iterate over all assertions, those that were not reached included."""
        return iter(self._assertions.values())

    def record(self, name: str, seen: str, *, holds: bool) -> bool:
        """Note what was seen; return whether the assertion holds."""
        text = several_lines(seen)[:MAX_SEEN_CHARS]
        assertion = replace(self._assertions[name], outcome="passed" if holds else "failed", seen=text)
        self._assertions[name] = assertion
        self._say("\n".join(lines_of(assertion)))
        return holds

    @property
    def passed(self) -> bool:
        """Whether every assertion was reached and holds."""
        return all(assertion.outcome == "passed" for assertion in self)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the assertions for the report."""
        return [asdict(assertion) for assertion in self]


def lines_of(assertion: Assertion) -> Iterator[str]:
    """Yield the lines that a terminal shows."""
    outcome = assertion.outcome.upper().replace("_", " ")
    yield f"{outcome:<11} {assertion.name}: {assertion.seen or assertion.expected}"
    if assertion.outcome == "failed":
        yield f"            expected: {assertion.expected}"
        yield f"            do: {assertion.fix}"
