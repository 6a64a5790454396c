"""`landfall smoke --gpu`: which network NCCL used, as the job's log has it; and its refusals."""

from __future__ import annotations

from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError

from cli.deploy.workspace import WorkspaceId
from cli.errors import CliError
from cli.smoke.assertions import Assertion, Results
from cli.smoke.gpu import GPU_ASSERTION, ask_network, gpu_pipeline
from tests.unit.cli.smoke.deployment import MACHINES, PIPELINE, Deployment, forbidden

RDMA, PLAIN = "Standard_ND96asr_v4", "Standard_NC24ads_A100_v4"
IB = "node-0:1:9 [0] NCCL INFO Using network IBext_v8\nnode-0:1:9 [1] NCCL INFO Using network IBext_v8\n"
SOCKET = "node-0:1:9 [0] NCCL INFO Using network Socket\n"


def synthetic(vm_size: str = RDMA, **machines: Any) -> dict[str, Any]:
    """A pipeline of synthetic data, as the API lists it."""
    on = {**MACHINES, "cluster": "gpus", "vm_size": vm_size, "num_nodes": 4, "world_size": 32, "device": "gpu"}
    return {**PIPELINE, "dataset": "benchmark", "splits": [], "machines": {**on, **machines}}


class Log:
    """A workspace with the log of a job."""

    def __init__(self, text: str | None, refusal: HttpResponseError | None = None) -> None:
        self._text, self._refusal = text, refusal

    def open(self, _identity: WorkspaceId) -> Log:
        return self

    def log_tail(self, _job: str, *, max_bytes: int) -> str | None:
        assert max_bytes
        if self._refusal:
            raise self._refusal
        return self._text


def asked(log: Log, vm_size: str = RDMA, deployment: Deployment | None = None) -> Assertion:
    deployment = deployment or Deployment()
    deployment.ends["failing"] = {"state": "not_registered", "notified_at": "t", "reason": "12 images/s"}
    course = deployment.course()
    course.results = Results(deployment.said.append, (GPU_ASSERTION,))
    ask_network(course, synthetic(vm_size), log.open)
    [assertion] = course.results
    return assertion


@pytest.mark.parametrize(
    ("log", "vm_size", "outcome", "seen"),
    [
        (IB, RDMA, "passed", "has InfiniBand, and NCCL uses IBext_v8"),
        (SOCKET, PLAIN, "passed", "has no InfiniBand, and NCCL uses Socket"),
        (SOCKET, RDMA, "failed", "has InfiniBand, and NCCL uses Socket"),
        (IB + SOCKET, RDMA, "failed", "NCCL uses IBext_v8, Socket"),
        ("step 1", RDMA, "failed", "NCCL_DEBUG: INFO must be set in the pipeline"),
        (None, RDMA, "failed", "NCCL_DEBUG: INFO must be set in the pipeline"),
    ],
)
def test_the_network_must_be_that_of_the_size(log: str | None, vm_size: str, outcome: str, seen: str) -> None:
    """One rank that goes another way is enough to fail."""
    assertion = asked(Log(log), vm_size)
    assert outcome == assertion.outcome
    assert seen in assertion.seen


def test_a_log_that_cannot_be_read_is_named() -> None:
    """The message has storage's answer."""
    assertion = asked(Log(None, refusal=forbidden()))
    assert ("failed", True) == (assertion.outcome, "the log cannot be read: This request is not" in assertion.seen)


def test_a_refused_run_is_named() -> None:
    """A pipeline that does not allow these overrides refuses it."""
    deployment = Deployment()
    deployment.fails_at = "POST /api/runs"
    assertion = asked(Log(IB), deployment=deployment)
    assert ("failed", "the run was refused: the app is broken") == (assertion.outcome, assertion.seen)


def test_an_interruption_cancels_the_run() -> None:
    """GPU nodes cost too much to be left alone."""
    deployment = Deployment()
    deployment.interrupts_at = "GET /api/runs/run-failing"
    with pytest.raises(KeyboardInterrupt):
        asked(Log(IB), deployment=deployment)
    assert "canceled" == deployment.runs["run-failing"]["state"]


def test_a_pipeline_of_synthetic_data_on_gpus_is_found() -> None:
    """The pipelines before it do not matter."""
    found = gpu_pipeline([{**PIPELINE, "splits": ["train"]}, synthetic()])
    assert "benchmark" == found["dataset"]


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ([], "no cluster has a GPU"),
        ([synthetic(num_nodes=1)], "the clusters with GPUs are gpus"),
        ([synthetic() | {"state": "out_of_service", "machines": None}], "no cluster has a GPU"),
    ],
)
def test_without_gpus_it_is_refused(others: list[dict[str, Any]], said: str) -> None:
    """The refusal says what to deploy."""
    with pytest.raises(CliError) as refused:
        gpu_pipeline([{**PIPELINE, "splits": ["train"]}, *others])
    assert said in refused.value.message
    assert "pipelines/synthetic-benchmark.yaml" in refused.value.message
