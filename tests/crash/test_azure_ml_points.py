"""SIGKILL after each request with which the real client changes Azure ML: a repetition finds its effect."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from function_app.adapters.azure_ml import AzureMLJobs, AzureMLModels, WorkspaceClient
from function_app.domain.jobs import JobSpec, ModelRegistration
from local_azure.azurite import Azurite
from tests.contract.function_app.azure_ml_benches import MODEL, job_spec
from tests.crash.adapter_calls import changes_seen
from tests.crash.process import killed
from tests.support.azure_ml import AzureMl, adapter_client, start_with_code

pytestmark = pytest.mark.azurite


@dataclass(frozen=True)
class Bench:
    """The emulator, and the way for a process to reach it."""

    emulator: AzureMl
    client: WorkspaceClient

    def another_client(self) -> WorkspaceClient:
        """Return a client for another process, because connections do not survive a fork."""
        return WorkspaceClient(self.client.workspace, client_id=str(uuid.uuid4()))

    def names(self, kind: str) -> list[str]:
        """Return the names of all resources of a kind, without using our client."""
        return [str(one["name"]) for one in self.emulator.get(f"{kind}?api-version=2023-08-01-preview")["value"]]


Act = Callable[[WorkspaceClient, JobSpec], object]


def submit(client: WorkspaceClient, spec: JobSpec) -> None:
    """Submit a job."""
    AzureMLJobs(client).submit(spec)


def cancel(client: WorkspaceClient, spec: JobSpec) -> None:
    """Cancel a job."""
    AzureMLJobs(client).cancel(spec.name)


def register(client: WorkspaceClient, spec: JobSpec) -> None:
    """Register the output of a job."""
    path = f"azureml://jobs/{spec.name}/outputs/model"
    registration = ModelRegistration(name=f"model-of-{spec.name}", version="1", path=path, description="", tags={})
    AzureMLModels(client).register(registration)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, azurite: Azurite) -> Iterator[Bench]:
    """An emulator with everything that a submission needs."""
    emulator = start_with_code(tmp_path_factory.mktemp("azure_ml"), azurite)
    with adapter_client(emulator) as client:
        yield Bench(emulator, client)
    emulator.process.stop()


def prepared(bench: Bench, act: Act) -> JobSpec:
    """Return a job in the state that an action needs."""
    spec = job_spec(
        "Completed" if act is register else "Running",
        name=f"landfall-{act.__name__}-{uuid.uuid4().hex[:8]}-a1",
        outputs=MODEL,
    )
    if act is not submit:
        submit(bench.client, spec)
    if act is register:
        bench.emulator.await_status(spec.name, "Completed")
    return spec


def dying(bench: Bench, act: Act, spec: JobSpec) -> None:
    """Perform an action, and die after the first request that was answered."""
    with changes_seen(lambda *_: os.kill(os.getpid(), signal.SIGKILL)):
        act(bench.another_client(), spec)


@pytest.mark.parametrize(("act", "verb"), [(submit, "PUT"), (cancel, "POST"), (register, "PUT")])
def test_each_change_of_azure_ml_is_one_request(bench: Bench, act: Act, verb: str) -> None:
    """No process can die in the middle of an action, so each call of the port is one crash point."""
    spec, verbs = prepared(bench, act), list[str]()
    with changes_seen(lambda verb, _: verbs.append(verb)):
        act(bench.client, spec)
    assert [verb] == verbs


def test_a_submission_whose_process_died_is_met_by_the_next(bench: Bench) -> None:
    """The job exists exactly once."""
    spec = prepared(bench, submit)
    assert killed(lambda: dying(bench, submit, spec))
    submit(bench.client, spec)
    assert [spec.name] == [name for name in bench.names("jobs") if name == spec.name]


def test_a_cancellation_whose_process_died_is_met_by_the_next(bench: Bench) -> None:
    """The job is canceled; canceling it again is no error."""
    spec = prepared(bench, cancel)
    assert killed(lambda: dying(bench, cancel, spec))
    cancel(bench.client, spec)
    assert "Canceled" == bench.emulator.await_status(spec.name, "Canceled")


def test_a_registration_whose_process_died_is_met_by_the_next(bench: Bench) -> None:
    """The model has one version."""
    spec = prepared(bench, register)
    assert killed(lambda: dying(bench, register, spec))
    register(bench.client, spec)
    assert ["1"] == bench.names(f"models/model-of-{spec.name}/versions")
