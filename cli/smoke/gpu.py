"""``landfall smoke --gpu``: one step of training on several GPU nodes; its log says which network NCCL uses."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from azure.core.exceptions import AzureError

from cli.deploy.workspace import WorkspaceId
from cli.errors import CliError
from cli.remote.api_client import ApiError
from cli.smoke.assertions import Assertion
from cli.smoke.course import RUN_WITHIN_S, Course, because, first_line
from cli.smoke.removal import workspace_of
from shared.errors import LandfallError
from shared.vm_sizes import network_environment

GPU_ASSERTION = Assertion(
    name="gpu_network",
    expected="NCCL uses InfiniBand between the nodes where their size has it, otherwise a socket",
    fix="read NCCL's other lines in the job's log: NET/IB says which devices it found, and why it passed over others",
)
MAX_LOG_BYTES = 4 << 20
_NETWORK = re.compile(r"NCCL INFO Using network (?P<name>[A-Za-z0-9_./-]{1,50})")


class JobLog(Protocol):
    """The part of a workspace that is needed."""

    def log_tail(self, job: str, *, max_bytes: int) -> str | None:
        """Return the end of a job's log."""
        ...


def gpu_pipeline(pipelines: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return a pipeline of synthetic data on several GPU nodes. Raises CliError if there is none."""
    in_service = [one for one in pipelines if one["state"] == "in_service"]
    for one in in_service:
        machines = one["machines"]
        if not one["splits"] and machines["device"] == "gpu" and machines["num_nodes"] > 1:
            return one
    has_gpus = sorted({one["machines"]["cluster"] for one in in_service if one["machines"]["device"] == "gpu"})
    known = f"the clusters with GPUs are {', '.join(has_gpus)}" if has_gpus else "no cluster has a GPU"
    raise CliError(
        "--gpu needs a pipeline with data.format synthetic on two or more GPU nodes, and none is in service; "
        f"{known}. Deploy pipelines/synthetic-benchmark.yaml, or leave --gpu out."
    )


def ask_network(course: Course, pipeline: Mapping[str, Any], open_workspace: Callable[[WorkspaceId], JobLog]) -> None:
    """Train one step and note which network NCCL used."""
    machines = pipeline["machines"]
    step = {"model_name": "small_cnn", "per_process_batch_size": 1, "synthetic_records": machines["world_size"]}
    try:
        # Forced: the same request was made by an earlier test, whose log may be gone.
        run = course.api.submit(pipeline["dataset"], None, step, force=True)
    except ApiError as error:
        course.results.record(GPU_ASSERTION.name, f"the run was refused: {error.message}", holds=False)
        return
    run_id = course.run_ids["gpu"] = run["run_id"]
    try:
        ended = course.wait(lambda: course.run_in(run_id), RUN_WITHIN_S)
        if ended is None:
            course.results.record(GPU_ASSERTION.name, f"{run_id} has not ended in {RUN_WITHIN_S:.0f} s", holds=False)
            return
    finally:
        with contextlib.suppress(CliError):  # it has ended, as it should
            course.api.cancel(run_id)
    holds, seen = _network(ended, machines["vm_size"], open_workspace)
    course.results.record(GPU_ASSERTION.name, f"{seen}; {run_id}: {ended['state']}{because(ended)}", holds=holds)


def _network(
    run: Mapping[str, Any], vm_size: str, open_workspace: Callable[[WorkspaceId], JobLog]
) -> tuple[bool, str]:
    """Return whether NCCL used what the size has, and a sentence about it."""
    identity = workspace_of(run)
    if identity is None:
        return False, "the run names no workspace, so its log cannot be read"
    try:
        log = open_workspace(identity).log_tail(run["run_id"], max_bytes=MAX_LOG_BYTES) or ""
    except (AzureError, LandfallError) as error:
        return False, f"the log cannot be read: {first_line(error)}"
    names = sorted({match["name"] for match in _NETWORK.finditer(log)})
    if not names:
        return False, "the log has no line `NCCL INFO Using network`; NCCL_DEBUG: INFO must be set in the pipeline"
    has_infiniband = not network_environment(vm_size)
    wanted = "IB" if has_infiniband else "Socket"
    words = f"{vm_size} has {'InfiniBand' if has_infiniband else 'no InfiniBand'}, and NCCL uses {', '.join(names)}"
    return all(name.startswith(wanted) for name in names), words
