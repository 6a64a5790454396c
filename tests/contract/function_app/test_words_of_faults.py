"""Notifications about faults of the emulated Azure ML that are not failed jobs, after which the run continues."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from function_app.domain.errors import ServiceUnavailableError
from function_app.domain.records import RunRecord
from function_app.domain.run_states import RunState
from function_app.runs.cancellation import cancel_run
from local_azure.azure_ml.faults import RETRIED, SDK_TRIES, AnswerFault, LifeFault
from local_azure.azurite import Azurite
from local_azure.processes import wait_until
from tests.contract.function_app.azure_ml_world import Twin, running_twin
from tests.support.azure_ml import cluster_body

pytestmark = pytest.mark.azurite


@pytest.fixture(scope="module")
def twin(
    azurite: Azurite, unused_accounts: Iterator[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Twin]:
    """One emulator and one world; each test has its own dataset."""
    with running_twin(tmp_path_factory.mktemp("azure_ml"), azurite, next(unused_accounts)) as running:
        yield running


@pytest.fixture
def dataset(twin: Twin) -> str:
    """A dataset with its own pipeline, not shared with other tests or with the second run."""
    name = f"words-{uuid.uuid4().hex[:8]}"
    twin.add_pipeline(name)
    return name


DELAYS = {
    AnswerFault.CONFLICT: "Another operation on this job is in progress",
    AnswerFault.EXPIRED_TOKEN: "The access token has expired",
    AnswerFault.THROTTLED: "Azure ML answered 429 and asks to wait for 20 s",
    AnswerFault.TRUNCATED: "answer (201) cannot be read",
    AnswerFault.LOST_AFTER: "Azure ML did not answer",
    AnswerFault.LOST_BEFORE: "Azure ML did not answer",
    AnswerFault.SERVER_ERROR: "Internal server error",
    AnswerFault.UNAVAILABLE: "The service is unavailable",
}
GATE = (AnswerFault.LOST_AFTER, AnswerFault.THROTTLED, AnswerFault.TRUNCATED)
"""Faults that the client handles in different ways; the others are in `make test-all`."""
REFUSALS = {
    AnswerFault.FORBIDDEN: ("configuration", "check the identity's role on the workspace"),
    AnswerFault.NAME_TAKEN: ("configuration", "another job has this name"),
    AnswerFault.QUOTA: ("no_capacity", "exceeding quota limits of Core"),
    AnswerFault.UNKNOWN_COMPUTE: ("configuration", "workspace landfall has no cluster cluster"),
}


def test_every_answer_has_its_words() -> None:
    """A new fault needs a text."""
    assert set(AnswerFault) == DELAYS.keys() | REFUSALS.keys()


@pytest.mark.parametrize(
    "fault", [pytest.param(fault, marks=[] if fault in GATE else pytest.mark.slow) for fault in DELAYS], ids=str
)
def test_a_delayed_submission_says_why_and_leads_to_one_model(twin: Twin, dataset: str, fault: AnswerFault) -> None:
    """The message stays in its queue; its next delivery submits the run, or finds the existing job."""
    twin.fault(fault, dataset, SDK_TRIES if fault in RETRIED else 1)
    with pytest.raises(ServiceUnavailableError):
        twin.upload(dataset)
    why = twin.why(twin.newest(dataset).run_id)
    assert (True, True) == (DELAYS[fault] in why, "it is submitted again" in why)
    twin.world.clock.move(seconds=20)
    assert RunState.SUBMITTED is twin.serve(dataset).state
    run = twin.finish(dataset, "Completed")
    assert (RunState.REGISTERED, 1) == (run.state, len(twin.world.services.ledger.runs(dataset=dataset)))


@pytest.mark.parametrize("fault", REFUSALS, ids=str)
def test_a_refused_submission_has_its_class_and_words(twin: Twin, dataset: str, fault: AnswerFault) -> None:
    """If a person can correct the cause, the message has the command that trains again without force."""
    failure_class, words = REFUSALS[fault]
    twin.fault(fault, dataset)
    run = twin.upload(dataset)
    run = twin.world.services.ledger.run(f"{run.logical_run}-a1") or run
    assert (RunState.FAILED, failure_class) == (run.state, run.failure_class)
    lines = f"{twin.run_text(run)} {twin.why(run.run_id)}"
    assert (True, True) == (words in lines, failure_class in lines)
    if failure_class == "configuration":
        fix = f"correct what Azure ML refuses, then: landfall submit {dataset}/v1"
        assert (True, True) == (words in twin.received(run), fix in twin.received(run))
    else:
        assert run.next_run_id is not None


def warnings_about(twin: Twin, run: RunRecord) -> dict[str, str]:
    """Return the warnings about a run, by outcome."""
    received = twin.world.people.received
    return {n.outcome: str(n.content["text"]) for n in received if n.subject == run.run_id}


def test_a_build_that_takes_an_hour_is_not_blamed_on_the_nodes(twin: Twin, dataset: str) -> None:
    """The notification names the image, and the run continues by itself."""
    twin.fault(LifeFault.SLOW_BUILD, dataset)
    run = twin.upload(dataset)
    twin.emulator.await_status(run.run_id, "Preparing")
    twin.sweep(dataset, minutes=50)
    text = warnings_about(twin, run)["run_waiting"]
    assert (True, False) == ("in preparation for 50 min: Azure ML builds or pulls the image" in text, "quota" in text)
    twin.advance(3600)
    assert RunState.REGISTERED is twin.finish(dataset, "Completed").state


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        (LifeFault.NOT_RESPONDING, "NotResponding", "has not responded for 35 min"),
        (LifeFault.UNKNOWN_STATE, "Hibernating", "has been Hibernating, a state that Landfall does not know, for 35"),
    ],
    ids=str,
)
def test_a_job_that_is_out_of_sight_is_warned_of_and_comes_back(
    twin: Twin, dataset: str, fault: LifeFault, status: str, words: str
) -> None:
    """The run's state does not change, whatever Azure ML calls it meanwhile."""
    twin.fault(fault, dataset)
    run = twin.upload(dataset)
    twin.emulator.await_status(run.run_id, status)
    move_to_running(twin, run)
    for minutes in (0, 35):
        twin.sweep(dataset, minutes=minutes)
    assert (RunState.RUNNING, True) == (
        twin.newest(dataset).state,
        words in warnings_about(twin, run)["run_silent"],
    )
    twin.advance(1800)
    assert RunState.REGISTERED is twin.finish(dataset, "Completed").state


def move_to_running(twin: Twin, run: RunRecord) -> None:
    """Record that the run was running before its job became unreachable."""
    ledger = twin.world.services.ledger
    stands = ledger.run(run.run_id)
    assert stands is not None
    ledger.save_run(replace(stands, state=RunState.RUNNING))


def test_a_cluster_that_vanishes_ends_its_run_with_what_to_create(twin: Twin, dataset: str) -> None:
    """The run ends after ten minutes, in case the cluster is created again."""
    twin.emulator.put("computes/cluster", cluster_body()).raise_for_status()
    twin.fault(LifeFault.COMPUTE_GONE, dataset)
    run = twin.upload(dataset)
    wait_until(lambda: not twin.world.services.jobs.has_compute("cluster"), what="the cluster to be deleted")
    try:
        twin.sweep(dataset)
        run = twin.sweep(dataset, minutes=11)
    finally:
        twin.emulator.put("computes/cluster", cluster_body()).raise_for_status()
    assert RunState.LOST is run.state
    words = "cluster cluster has been missing from the workspace since"
    assert (True, True) == (
        words in twin.received(run),
        "Create the cluster again, then: landfall submit" in str(run.reason),
    )
    assert "Canceled" == twin.emulator.await_status(run.run_id)


def test_a_job_whose_end_no_event_tells_is_ended_by_the_sweep(twin: Twin, dataset: str) -> None:
    """A person canceled it, and the service sends no event."""
    twin.fault(LifeFault.NO_END_EVENT, dataset)
    run = twin.upload(dataset)
    cancel_run(run.run_id, canceled_by="person", reason="not needed", services=twin.world.services)
    run = twin.finish(dataset, "Canceled")
    assert (RunState.CANCELED, True) == (run.state, "not needed" in twin.received(run))
