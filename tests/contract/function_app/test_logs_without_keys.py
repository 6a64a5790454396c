"""The end of a job's log if Azure ML returns no readable URL, and the message if nothing can be read."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from function_app.adapters.azure_ml import AzureMLJobs, WorkspaceClient
from function_app.adapters.azure_ml_logs import JobLogs
from function_app.domain.errors import LogUnreadableError
from local_azure.azure_ml.settings import LogAddresses
from local_azure.azurite import HOST_ACCOUNT, Azurite
from tests.contract.function_app.azure_ml_benches import job_spec
from tests.contract.function_app.azure_ml_world import Twin, running_twin
from tests.support.azure_ml import APP_IDENTITY, AzureMl, adapter_client, start_with_code

pytestmark = pytest.mark.azurite


@pytest.fixture(scope="module", params=list(LogAddresses))
def addresses(request: pytest.FixtureRequest) -> LogAddresses:
    """The URLs that the run history returns."""
    return LogAddresses(request.param)


@pytest.fixture(scope="module")
def emulator(
    azurite: Azurite, tmp_path_factory: pytest.TempPathFactory, addresses: LogAddresses
) -> Iterator[AzureMl]:
    """An emulator whose run history returns these URLs."""
    running = start_with_code(tmp_path_factory.mktemp("azure_ml"), azurite, "--log-addresses", addresses)
    yield running
    running.process.stop()


def ended_job(jobs: AzureMLJobs, emulator: AzureMl) -> str:
    """Run a job whose log has a known end; return its name."""
    spec = job_spec("Completed")
    jobs.submit(spec)
    emulator.await_status(spec.name, "Completed")
    return spec.name


def test_the_log_is_read_as_the_app_where_addresses_cannot_be(emulator: AzureMl, addresses: LogAddresses) -> None:
    """The run history returns only a mode, but the end of the log is the same."""
    with adapter_client(emulator) as client:
        jobs = AzureMLJobs(client)
        name = ended_job(jobs, emulator)
        known = emulator.details(name)["logFiles"].values()
        tail = jobs.log_tail(name, max_bytes=9)
    assert (addresses is not LogAddresses.NONE, addresses is LogAddresses.SIGNED) == (
        bool(known),
        any("sig=" in address for address in known),
    )
    assert "he end\n" == (tail or "")[-7:]


def test_an_identity_without_the_role_reads_which_one_it_needs(emulator: AzureMl, addresses: LogAddresses) -> None:
    """Without a role, only a signed URL can be read."""
    stranger = str(uuid.uuid4())
    with adapter_client(emulator) as client:
        logs = JobLogs(client_id=stranger, blob_uri=f"{emulator.url}/blob/{HOST_ACCOUNT}")
        jobs = AzureMLJobs(WorkspaceClient(client.workspace, APP_IDENTITY, logs=logs))
        name = ended_job(jobs, emulator)
        if addresses is LogAddresses.SIGNED:
            assert "the end" in (jobs.log_tail(name, max_bytes=100) or "")
            return
        with pytest.raises(
            LogUnreadableError, match="give it the role Storage Blob Data Reader on container azureml"
        ):
            jobs.log_tail(name, max_bytes=100)


def test_a_job_without_a_log_has_none(emulator: AzureMl) -> None:
    """A job that has not started wrote nothing, which is no error."""
    with adapter_client(emulator) as client:
        jobs = AzureMLJobs(client)
        spec = job_spec()
        emulator.twin("POST", "faults", {"fault": "slow_build", "job": spec.name})
        jobs.submit(spec)
        tail = jobs.log_tail(spec.name, max_bytes=9)
        jobs.cancel(spec.name)
    assert tail is None


@pytest.fixture(scope="module")
def twin(
    azurite: Azurite, unused_accounts: Iterator[str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Twin]:
    """The app on an emulator whose run history returns no URLs."""
    with running_twin(tmp_path_factory.mktemp("azure_ml"), azurite, next(unused_accounts)) as running:
        yield running


def test_a_failure_whose_log_cannot_be_read_is_unknown_and_says_why(twin: Twin) -> None:
    """With a readable log, an exit code with many causes would be classified as an error of the user's code."""
    dataset = f"unread-{uuid.uuid4().hex[:4]}"
    twin.add_pipeline(dataset, STAND_IN_EXIT="1")
    jobs, blob_uri = twin.world.services.jobs, f"{twin.emulator.url}/blob/{twin.account}"
    stranger = JobLogs(client_id=str(uuid.uuid4()), blob_uri=blob_uri)
    client = WorkspaceClient(twin.world.services.workspace, APP_IDENTITY, logs=stranger)
    twin.world.services = replace(twin.world.services, jobs=AzureMLJobs(client))
    try:
        run = twin.upload(dataset)
        run = twin.finish(dataset, "Failed")
    finally:
        twin.world.services = replace(twin.world.services, jobs=jobs)
    role = "give it the role Storage Blob Data Reader"
    assert ("unknown", None) == (run.failure_class, run.log_tail)
    assert (True, True, True) == (
        role in twin.received(run),
        role in twin.run_text(run),
        f"its log could not be read: {role}"[:25] in twin.why(run.run_id),
    )
