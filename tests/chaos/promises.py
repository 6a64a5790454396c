"""The promises that a chaos run checks, judged by the evidence that it left."""

from __future__ import annotations

import hashlib
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise

from function_app.domain.failures import FailureClass
from function_app.domain.jobs import TAG
from function_app.domain.records import RunRecord
from function_app.domain.run_states import SETTLED, RunState
from local_azure.azure_ml.faults import FAULTS, AnswerFault, fault_named
from tests.chaos.evidence import Evidence, Model
from tests.chaos.faults import ENDS, PlannedFault
from tests.chaos.layouts import LAYOUTS, layout_of
from tests.chaos.plan import NUM_LABELS, ChaosPlan, crcs_of
from tests.chaos.report import Finding
from tests.chaos.storm import Damage

RECIPIENTS = 2


def judge(plan: ChaosPlan, damage: Damage, evidence: Evidence) -> list[Finding]:
    """Return every promise with what was seen, then the findings that describe the storm."""
    return [
        *promises(plan, evidence),
        *promises_of_requests(Counter(damage.asked.values()), evidence),
        *promises_of_faults(plan.job_faults(), evidence),
        *description(damage, evidence),
    ]


def promises(plan: ChaosPlan, evidence: Evidence) -> list[Finding]:
    """Return the findings that must be exactly as promised."""
    return [
        *promises_of_models(plan, evidence),
        *promises_of_versions(plan, evidence),
        *promises_of_runs(evidence),
        exactly("events suppressed without a reason", sum(not entry.reason for entry in evidence.suppressed), 0),
    ]


def promises_of_models(plan: ChaosPlan, evidence: Evidence) -> list[Finding]:
    """Return that lineage is true, and that nothing is registered twice."""
    by_run = Counter(model.run_id for model in evidence.models)
    registered = {run.run_id: run for run in evidence.runs if run.state is RunState.REGISTERED}
    misnamed = [model for model in evidence.models if not is_named_as(model, registered.get(model.run_id))]
    by_content = Counter((model.manifest.dataset, model.manifest.fingerprint) for model in evidence.models)
    last = [(dataset, content) for dataset, content in plan.last_fingerprints().items() if content is not None]
    return [
        exactly("models that were trained on other bytes than their lineage says", false_models(plan, evidence), 0),
        exactly("models that are not those of a registered run", len(misnamed), 0),
        exactly("runs with more than one model", sum(n > 1 for n in by_run.values()), 0),
        exactly("runs that registered a model without one", len(registered.keys() - by_run), 0),
        exactly(
            "complete versions with one model of their last content", sum(by_content[x] == 1 for x in last), len(last)
        ),
        exactly("contents with more than one model", sum(n > 1 for n in by_content.values()), 0),
    ]


def false_models(plan: ChaosPlan, evidence: Evidence) -> int:
    """Return the number of models whose checksums are not those of the contents that their lineage names."""
    bytes_of = {
        (stored, crcs_of({stored: content})[stored]): content
        for dataset in plan.datasets[: len(LAYOUTS)]
        for name in plan.shard_names(dataset)
        for shift in range(NUM_LABELS)
        for stored, content in layout_of(dataset).stored({name: plan.content(name, shift, dataset)}).items()
    }

    def is_true(model: Model) -> bool:
        shards = {shard.name: shard.crc32c for shard in model.manifest.shards}
        whole = hashlib.sha256(b"".join(bytes_of[name, shards[name]] for name in sorted(shards)))
        return (shards, whole.hexdigest()) == (model.read["shards"], model.read["sha256"])

    return sum(not is_true(model) for model in evidence.models)


def is_named_as(model: Model, run: RunRecord | None) -> bool:
    """Whether the tags of a model are those of its run, and the manifest is the one that they name."""
    if run is None:
        return False
    names = {
        "dataset_version": str(run.dataset_version),
        "generation": str(run.generation),
        "fingerprint": run.fingerprint,
        "run_id": run.run_id,
    }
    is_tagged = all(model.tags[TAG + name] == value for name, value in names.items())
    return is_tagged and model.manifest.fingerprint == run.fingerprint


def promises_of_versions(plan: ChaosPlan, evidence: Evidence) -> list[Finding]:
    """Return that each version was closed as often as its content changed, and trained as often as it was closed."""
    disturbed, whole = plan.changes(), [name for name, content in plan.last_fingerprints().items() if content]
    last = {name: crcs_of(contents) for name, contents in plan.last_contents().items()}
    once = [name for name in plan.datasets if name not in disturbed]
    runs = Counter(run.dataset_version.dataset for run in evidence.runs if is_of_closing(run))
    unchanged = sum(a == b for closings in evidence.closings.values() for a, b in pairwise(closings))
    newest = {name: closings[-1] for name, closings in evidence.closings.items() if closings}
    closed = sum(newest.get(name) == content for name, content in plan.last_fingerprints().items() if content)
    return [
        exactly(
            "complete versions whose last shards are accepted",
            sum(accepted_of_last(x, last[x], evidence) == last[x] for x in whole),
            len(whole),
            but="; ".join(filter(None, (not_accepted(x, last[x], evidence) for x in whole))),
        ),
        exactly("complete versions closed with their last content", closed, len(whole)),
        exactly(
            "undisturbed versions closed once", sum(len(evidence.closings.get(x, ())) == 1 for x in once), len(once)
        ),
        exactly("closings of unchanged content", unchanged, 0),
        exactly("closings of tables out of the order of their commits", out_of_order(evidence), 0),
        exactly("undisturbed versions whose closing started one run", sum(runs[x] == 1 for x in once), len(once)),
    ]


def accepted_of_last(dataset: str, last: Mapping[str, str], evidence: Evidence) -> Mapping[str, str]:
    """Return the accepted shards of a version; where it is whole without a file, those of the files that are left.

    Tables keep what a commit has removed, and a verdict on a file that was deleted before a closing stays.
    """
    accepted, may_lose_files = evidence.accepted.get(dataset, {}), layout_of(dataset).may_lose_files
    return {name: crc for name, crc in accepted.items() if name in last} if may_lose_files else accepted


def not_accepted(dataset: str, last: Mapping[str, str], evidence: Evidence) -> str:
    """Return in words how the accepted shards of a version differ from the last ones; nothing where they do not."""
    accepted = accepted_of_last(dataset, last, evidence)
    other = sorted(name for name in accepted.keys() & last.keys() if accepted[name] != last[name])
    found = {"missing": sorted(last.keys() - accepted), "superfluous": sorted(accepted.keys() - last), "other": other}
    words = ", ".join(f"{what} {names}" for what, names in found.items() if names)
    return f"{dataset}: {words}" if words else ""


def out_of_order(evidence: Evidence) -> int:
    """Return how many closings of tables are of a commit that another closing is of, or a later one was of before."""
    return sum(a >= b for commits in evidence.commits.values() for a, b in pairwise(commits))


def promises_of_runs(evidence: Evidence) -> list[Finding]:
    """Return that each run has one job at most, and that each end is notified once to each recipient."""
    ids = {run.run_id for run in evidence.runs}
    submitted = {run.run_id for run in evidence.runs if run.submitted_at is not None}
    by_closing = Counter((run.dataset_version, run.generation) for run in evidence.runs if is_of_closing(run))
    ended = {run.run_id: run.state for run in evidence.runs if has_notification(run)}
    ends = Counter({key: count for key, count in evidence.notified.items() if key[2] in set(RunState)})
    expected = {(run_id, str(state)) for run_id, state in ended.items()}
    return [
        exactly("closings that started more than one run", sum(n > 1 for n in by_closing.values()), 0),
        exactly("jobs that the ledger does not know", len(set(evidence.jobs) - ids), 0),
        exactly("submitted runs without a job", len(submitted - set(evidence.jobs)), 0),
        exactly("distinct notifications of ends", ends.total(), len(ended) * RECIPIENTS),
        exactly("ends per recipient", len(ends), len(ended) * RECIPIENTS),
        exactly(
            "notified outcomes that are not the run's",
            len({(one, outcome) for one, _, outcome in ends} - expected),
            0,
        ),
    ]


def promises_of_requests(asked: Counter[str], evidence: Evidence) -> list[Finding]:
    """Return that people's requests started no more runs than there were requests."""
    requested = Counter(
        run.dataset_version.dataset for run in evidence.runs if run.attempt == 1 and not is_of_closing(run)
    )
    return [exactly("requested runs without a request", (requested - asked).total(), 0)]


def promises_of_faults(planned: Iterable[PlannedFault], evidence: Evidence) -> list[Finding]:
    """Return that each planned fault was met, and that runs failed because of their jobs' faults and nothing else."""
    wanted, seen = Counter[str](), Counter(fault for fault, _ in evidence.faults)
    for one in planned:
        wanted[one.fault] += one.times
    runs = {run.run_id: run for run in evidence.runs}
    ends = [(run, fault) for fault, job in evidence.faults if fault in ENDS and (run := runs.get(job))]
    return [
        *(
            Finding(
                name=f"fault {fault} was met",
                value=float(seen[fault]),
                unit="calls" if isinstance(fault, AnswerFault) else "jobs",
                promised=float(wanted[fault]) if wanted[fault] else None,
            )
            for fault in FAULTS
        ),
        exactly(
            "runs that ended otherwise than their fault", sum(not ended_of(run, fault) for run, fault in ends), 0
        ),
        exactly("runs that failed without a cause", sum(not has_cause(run, evidence) for run in evidence.runs), 0),
    ]


def ended_of(run: RunRecord, fault: str) -> bool:
    """Whether a run ended as the fault of its job leads to; a cancellation or changed data may come before that."""
    if run.failure_class == FailureClass.DATA_CHANGED or run.state in (RunState.CANCELED, RunState.SUPPRESSED):
        return True
    return run.state is RunState.FAILED and run.failure_class == ENDS[fault_named(fault)]


def has_cause(run: RunRecord, evidence: Evidence) -> bool:
    """Whether a run did not fail, or of what the storm did: a fault, changed data, or an output's error."""
    if run.state not in (RunState.FAILED, RunState.LOST, RunState.NOT_REGISTERED):
        return True
    met = [fault_named(fault) for fault, job in evidence.faults if job == run.run_id]
    return run.failure_class in (
        *(ENDS[fault] for fault in met if fault in ENDS),
        FailureClass.DATA_CHANGED,
        FailureClass.COMMUNICATION,  # writing an output fails now and then: MountRules.errors_permille
    )


def is_of_closing(run: RunRecord) -> bool:
    """Whether this is the first attempt of the run that a closing started."""
    return run.trigger == "closed" and run.attempt == 1


def has_notification(run: RunRecord) -> bool:
    """Whether the end of a run is notified."""
    return run.state in SETTLED and run.state is not RunState.SUPPRESSED and run.next_run_id is None


def description(damage: Damage, evidence: Evidence) -> list[Finding]:
    """Return how strong the storm was and how long the recovery took."""
    states = Counter(str(run.state) for run in evidence.runs)
    facts = {
        **{f"shards changed {when}": count for when, count in sorted(damage.changes.items())},
        "versions closed again": sum(max(0, len(closings) - 1) for closings in evidence.closings.values()),
        **{f"runs {state}": count for state, count in sorted(states.items())},
        "runs that ended because their data changed": sum(
            run.failure_class == FailureClass.DATA_CHANGED for run in evidence.runs
        ),
        "further attempts of runs": sum(run.attempt > 1 for run in evidence.runs),
        "requests of people for another run": len(damage.asked),
        "models registered": len(evidence.models),
        "shards whose checksums were compared": sum(len(model.read["shards"]) for model in evidence.models),
        **{f"events {what}": count for what, count in sorted(evidence.events.items())},
        "duplicates suppressed with a reason": len(evidence.suppressed),
        "notifications received, including repetitions": evidence.deliveries,
        "dead letters": evidence.dead_letters,
        "named faults met in the storm": damage.met_in_storm,
        "named faults met after it": len(evidence.faults) - damage.met_in_storm,
        "calls of Azure ML that failed": evidence.failed_calls.total(),
        "storage requests that failed": damage.storage_faults,
        "crashes survived": len(damage.restarts_s),
    }
    return [
        *(Finding(name=name, value=float(count)) for name, count in facts.items()),
        Finding(name="time until a killed host answers, median", value=median_or_0(damage.restarts_s), unit="s"),
        Finding(name="length of the storm", value=damage.storm_s, unit="s"),
        Finding(name="time from its end to the last notification", value=damage.recovery_s, unit="s"),
    ]


def exactly(name: str, value: int, promised: int, but: str = "") -> Finding:
    """Return a finding that holds at one value only."""
    return Finding(name=name, value=float(value), promised=float(promised), but=but)


def median_or_0(samples: Iterable[float]) -> float:
    """Return the median, or 0 without samples: a short storm may end before the first kill."""
    return statistics.median([*samples] or [0.0])
