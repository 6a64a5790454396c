"""Each failure class and each remedy, from its cause on the emulated Azure ML to the notification."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from function_app.domain.failures import FailureClass, Remedy
from function_app.domain.run_states import RunState
from local_azure.azurite import Azurite
from shared.exit_codes import ExitCode
from tests.contract.function_app.azure_ml_world import OWN_TRAINING, SCRIPT, Twin, running_twin

pytestmark = pytest.mark.azurite


@pytest.fixture(scope="module")
def twin(
    azurite: Azurite, unused_accounts: Iterator[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Twin]:
    """One emulator and one world; each test has its own dataset."""
    with running_twin(tmp_path_factory.mktemp("azure_ml"), azurite, next(unused_accounts)) as running:
        yield running


def exits_with(code: int) -> dict[str, str]:
    """Let the first attempt end with an exit code."""
    return {"STAND_IN_EXIT_OF_ATTEMPT_1": str(code)}


def let_its_limit_pass(twin: Twin, dataset: str) -> None:
    """Advance both clocks beyond the job's limit."""
    twin.emulator.await_status(twin.newest(dataset).run_id, "Running")
    twin.sweep(dataset)
    twin.world.clock.move(seconds=601)
    twin.advance(601)


def cancel_in_azure_ml(twin: Twin, dataset: str) -> None:
    """Cancel the job as a person does in the studio."""
    twin.world.services.jobs.cancel(twin.newest(dataset).run_id)


def refuse_the_log(twin: Twin, _dataset: str) -> None:
    """Let storage refuse the app's identity once."""
    do = {"status": 403, "code": "AuthorizationPermissionMismatch", "message": "not authorized"}
    twin.emulator.twin("POST", "faults", {"match": {"path": "/blob/"}, "do": do})


@dataclass(frozen=True, kw_only=True)
class Case:
    """What happens to the first attempt, and what follows."""

    variables: Mapping[str, str] = field(default_factory=dict)
    script: str = SCRIPT
    fault: str = ""
    other_clusters: tuple[str, ...] = ("other-cluster",)
    meanwhile: Callable[[Twin, str], None] | None = None
    remedy: Remedy
    words: str
    """A part of the notification about the run that ended."""


ENTRY_POINT = "$(file=$(mktemp); echo 'exit 3' > $file; echo $file)"
"""A file that bash runs before the job's command; it ends the container without a message."""
HANGS = {"STAND_IN_SECONDS": "600"}
CASES: Mapping[FailureClass, Case] = {
    FailureClass.PREEMPTED: Case(fault="preempted", remedy=Remedy.RESUME, words="nodes of the job were preempted"),
    FailureClass.NO_CAPACITY: Case(
        fault="capacity", remedy=Remedy.OTHER_SIZE, words="do not have sufficient capacity"
    ),
    FailureClass.IMAGE_BUILD: Case(fault="image_build", remedy=Remedy.STOP, words="Image build failed"),
    FailureClass.PACKAGES: Case(fault="packages", remedy=Remedy.STOP, words="No matching distribution found for"),
    FailureClass.CONTAINER: Case(
        variables={"BASH_ENV": ENTRY_POINT},
        remedy=Remedy.STOP,
        words="use an image for linux/amd64 with Python on its PATH and without an entry point that exits",
    ),
    FailureClass.OUT_OF_MEMORY: Case(
        script=OWN_TRAINING,
        variables=exits_with(137),
        remedy=Remedy.SMALLER_BATCH,
        words="exited with status code 137",
    ),
    FailureClass.COMMUNICATION: Case(
        variables=exits_with(ExitCode.RANK_LOST), remedy=Remedy.RESUME, words="exited with status code 15"
    ),
    FailureClass.MISSING_RESOURCES: Case(
        variables=exits_with(ExitCode.MISSING_RESOURCES), remedy=Remedy.STOP, words="exited with status code 20"
    ),
    FailureClass.ARGUMENTS: Case(
        variables={"STAND_IN_NEEDS": "folds"},
        remedy=Remedy.STOP,
        words="let the script accept its arguments, or correct train.arguments or train.pass_paths",
    ),
    FailureClass.MISSING_FILE: Case(
        variables={"STAND_IN_READS": "weights.h5"},
        remedy=Remedy.STOP,
        words="provide the file that the script opens",
    ),
    FailureClass.DATA: Case(
        variables=exits_with(ExitCode.DATA), remedy=Remedy.QUARANTINE, words="exited with status code 10"
    ),
    FailureClass.CONFIGURATION: Case(
        fault="unknown_compute", remedy=Remedy.STOP, words="has no cluster cluster. Create it with landfall publish"
    ),
    FailureClass.DATA_CHANGED: Case(
        variables=exits_with(ExitCode.DATA_CHANGED), remedy=Remedy.STOP, words="exited with status code 18"
    ),
    FailureClass.USER_CODE: Case(
        variables={"STAND_IN_EXIT": "1"}, remedy=Remedy.STOP, words="there is no column called colour"
    ),
    FailureClass.TIMEOUT: Case(
        variables=HANGS, meanwhile=let_its_limit_pass, remedy=Remedy.STOP, words="canceled in Azure ML"
    ),
    FailureClass.CANCELED: Case(
        variables=HANGS, meanwhile=cancel_in_azure_ml, remedy=Remedy.STOP, words="canceled in Azure ML"
    ),
    FailureClass.UNKNOWN: Case(
        variables={"STAND_IN_EXIT": "1"},
        meanwhile=refuse_the_log,
        remedy=Remedy.STOP,
        words="give it the role Storage Blob Data Reader",
    ),
}
WITHOUT_ANOTHER_CLUSTER = Case(
    fault="capacity", other_clusters=(), remedy=Remedy.WAIT, words="do not have sufficient capacity"
)
OF_A_SCRIPT = Case(variables=exits_with(137), remedy=Remedy.OTHER_SIZE, words="exited with status code 137")
LACKS_PYTHON = Case(
    variables={"PATH": "/nowhere"}, remedy=Remedy.STOP, words="use an image for linux/amd64 with Python"
)
CONTINUED = frozenset({Remedy.RESUME, Remedy.WAIT, Remedy.SMALLER_BATCH, Remedy.OTHER_SIZE})


def test_every_class_and_every_remedy_has_a_case() -> None:
    """A new class needs a cause on the emulator."""
    assert set(FailureClass) == set(CASES)
    assert set(Remedy) == {case.remedy for case in (*CASES.values(), WITHOUT_ANOTHER_CLUSTER)}


@pytest.mark.parametrize(
    ("failure_class", "case"),
    [
        *CASES.items(),
        (FailureClass.NO_CAPACITY, WITHOUT_ANOTHER_CLUSTER),
        (FailureClass.OUT_OF_MEMORY, OF_A_SCRIPT),
        (FailureClass.CONTAINER, LACKS_PYTHON),
    ],
)
def test_a_failure_has_its_class_its_remedy_and_words_that_people_read(
    twin: Twin, failure_class: FailureClass, case: Case
) -> None:
    """A remedy that retries leads to a model; any other one ends the run with a notification."""
    dataset = f"{failure_class.replace('_', '-')}-{uuid.uuid4().hex[:4]}"
    twin.add_pipeline(dataset, script=case.script, other_clusters=case.other_clusters, **case.variables)
    if case.fault:
        twin.fault(case.fault, dataset)
    first = twin.upload(dataset)
    if case.meanwhile is not None:
        case.meanwhile(twin, dataset)
    if first.state is not RunState.FAILED:
        twin.finish(dataset)
    first = twin.world.services.ledger.run(first.run_id) or first
    assert (failure_class, case.remedy) == (first.failure_class, first.remedy)
    lines = f"{twin.run_text(first)}\n{twin.why(first.run_id)}"
    assert (True, True) == (case.words in lines, f"failure: {failure_class}, remedy: {case.remedy}" in lines)
    if case.remedy not in CONTINUED:
        assert (None, True) == (first.next_run_id, case.words in twin.received(first))
        return
    assert first.next_run_id is not None
    twin.sweep(dataset, minutes=2)  # after the pause, if there is one
    twin.finish(dataset, "Completed")
    last = twin.newest(dataset)
    assert (first.next_run_id, RunState.REGISTERED) == (last.run_id, last.state)
