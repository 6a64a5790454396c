"""The real azure-ai-ml client submits, follows, lists and cancels jobs of the emulator."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from local_azure.processes import wait_until
from tests.support.azure_ml import WORKSPACE_ID, AzureMl

if TYPE_CHECKING:
    from azure.ai.ml import MLClient
    from azure.ai.ml.entities import Command

pytestmark = [pytest.mark.azurite, pytest.mark.xdist_group("azure_ml")]

NAMES = (f"job-{number}" for number in itertools.count())


def a_job(command: str = "echo done", **options: Any) -> Command:
    """Return a command job in the registered environment, with its own name."""
    from azure.ai.ml import command as make

    environment = f"{WORKSPACE_ID}/environments/plain/versions/1"
    name = str(options.pop("name", None) or next(NAMES))
    job: Command = make(command=command, environment=environment, compute="cluster", name=name, **options)
    return job


def submit(client: MLClient, job: Command) -> str:
    """Submit a job; return its name."""
    return str(client.jobs.create_or_update(job, skip_validation=True).name)


def test_submitting_with_registered_ids_is_exactly_one_put(client: MLClient, emulator: AzureMl) -> None:
    """With ids for environment and compute, nothing is looked up or uploaded."""
    before = len(emulator.calls())
    name = submit(client, a_job())
    calls = [(call["method"], call["path"], call["status"]) for call in emulator.calls()[before:]]
    assert [("PUT", f"{WORKSPACE_ID}/jobs/{name}", 201)] == calls


def test_a_job_is_read_back_as_submitted(client: MLClient) -> None:
    """`jobs.get` returns the command, the tags and a state."""
    name = submit(client, a_job("echo read", tags={"landfall.run_id": "r1"}, experiment_name="digits"))
    job = client.jobs.get(name)
    expected = ("echo read", {"landfall.run_id": "r1"}, "digits")
    assert expected == (job.command, job.tags, job.experiment_name)


def test_a_missing_job_is_a_404(client: MLClient) -> None:
    """The client raises its own not-found error."""
    from azure.core.exceptions import ResourceNotFoundError

    with pytest.raises(ResourceNotFoundError, match="absent was not found"):
        client.jobs.get("absent")


def test_jobs_are_listed_newest_first(client: MLClient) -> None:
    """`jobs.list` returns every job."""
    first, second = submit(client, a_job()), submit(client, a_job())
    listed = [job.name for job in client.jobs.list()]
    assert listed.index(second) < listed.index(first)


def test_streaming_prints_the_log_and_returns_at_the_end(
    client: MLClient, emulator: AzureMl, capsys: pytest.CaptureFixture[str]
) -> None:
    """`jobs.stream` follows the run history to the end and prints what the job wrote."""
    name = submit(client, a_job("echo first line; sleep 3; echo last line"))
    client.jobs.stream(name)
    printed = capsys.readouterr().out
    assert ["first line", "last line"] == [line for line in printed.splitlines() if line.endswith("line")]
    assert "Completed" == emulator.status(name)


def test_streaming_a_failed_job_raises_its_error(client: MLClient) -> None:
    """The error of the run details reaches the client's exception, with exit status and log tail."""
    from azure.ai.ml.exceptions import JobException

    name = submit(client, a_job("echo it broke; exit 7"))
    with pytest.raises(JobException, match=r"(?s)exited with status code 7.*it broke"):
        client.jobs.stream(name)


def test_canceling_ends_the_job(client: MLClient, emulator: AzureMl) -> None:
    """`begin_cancel` is a POST and a poll of its result, after which the run is Canceled."""
    name = submit(client, a_job("sleep 300"))
    emulator.await_status(name, "Running")
    client.jobs.begin_cancel(name).wait()
    assert "Canceled" == client.jobs.get(name).status


def test_canceling_a_queued_job_needs_no_node(client: MLClient, emulator: AzureMl) -> None:
    """It is removed from the queue."""
    holder = submit(client, a_job("sleep 300", instance_count=4))
    emulator.await_status(holder, "Running")
    waiting = submit(client, a_job())
    emulator.await_status(waiting, "Queued")
    client.jobs.begin_cancel(waiting).wait()
    client.jobs.begin_cancel(holder).wait()
    assert ("Canceled", "Canceled") == (emulator.status(waiting), emulator.status(holder))


def test_canceling_an_ended_job_changes_nothing(client: MLClient, emulator: AzureMl) -> None:
    """A completed run stays completed."""
    name = submit(client, a_job())
    emulator.await_status(name, "Completed")
    client.jobs.begin_cancel(name).wait()
    assert "Completed" == emulator.status(name)


def test_the_time_limit_cancels(client: MLClient, emulator: AzureMl) -> None:
    """`limits.timeout` ends a run as Canceled, with a warning that says why."""
    job = a_job("sleep 300")
    job.set_limits(timeout=1)
    name = submit(client, job)
    assert "Canceled" == emulator.await_status(name)
    warnings = [warning["message"] for warning in emulator.details(name)["warnings"]]
    assert ["The job exceeded its time limit of 1 seconds and was canceled."] == warnings


def test_the_same_job_again_is_the_same_job(client: MLClient, emulator: AzureMl) -> None:
    """A repeated PUT of the same content finds the first job, and the tags are merged."""
    name = submit(client, a_job("echo once", tags={"a": "1"}))
    emulator.await_status(name, "Completed")
    again = client.jobs.create_or_update(a_job("echo once", name=name, tags={"b": "2"}), skip_validation=True)
    assert ("Completed", {"a": "1", "b": "2"}) == (again.status, again.tags)


def test_a_changed_job_under_an_existing_name_is_refused(client: MLClient) -> None:
    """The service's 400 names what may not change, with its inner codes."""
    from azure.core.exceptions import HttpResponseError

    name = submit(client, a_job("echo one"))
    with pytest.raises(HttpResponseError, match=r"existing job's command cannot be changed") as refused:
        submit(client, a_job("echo other", name=name))
    answer: Any = refused.value.response
    error = answer.json()["error"]
    inner = error["additionalInfo"][0]["info"]["value"]
    seen = (answer.status_code, error["code"], inner["code"], inner["innerError"]["code"])
    assert (400, "UserError", "Immutable", "JobPropertyImmutable") == seen


def test_states_are_walked_in_the_service_s_order(client: MLClient, emulator: AzureMl) -> None:
    """A job that waits for nodes and runs for a while passes all lasting states in order."""
    name = submit(client, a_job("sleep 1", instance_count=3))
    seen: list[str] = []

    def look() -> bool:
        status = emulator.status(name)
        if status not in seen:
            seen.append(status)
        return status in {"Completed", "Failed"}

    wait_until(look, what=f"{name} to end", timeout_s=120)
    order = ["NotStarted", "Starting", "Preparing", "Queued", "Running", "Finalizing", "Completed"]
    assert [state for state in order if state in seen] == seen
    assert {"Running", "Completed"} <= set(seen)
