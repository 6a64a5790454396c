"""A command job as the emulator reads it."""

from __future__ import annotations

from typing import Any

import pytest

from local_azure.azure_ml.service import ServiceError
from local_azure.azure_ml.spec import expand, job_spec, unknown_placeholders
from local_azure.azure_ml.storage import output_uri
from local_azure.azure_ml.workspace import asset_name


def properties(**more: Any) -> dict[str, Any]:
    """The least that a job has, and more."""
    return {"jobType": "Command", "command": "echo", "environmentId": "/e", "computeId": "/c", **more}


def test_a_job_without_a_distribution_runs_once() -> None:
    """One node, no mpirun, no limit."""
    spec = job_spec(properties())
    assert (1, None, None, None) == (spec.instance_count, spec.processes_per_instance, spec.timeout_s, spec.code_id)


def test_tensorflow_has_one_worker_for_each_instance() -> None:
    """Whether the job says so, or leaves it to the service; PyTorch's processes are stated for each."""
    tensorflow, pytorch = ({"distributionType": kind} for kind in ("TensorFlow", "PyTorch"))
    stated: tuple[dict[str, int], ...] = ({"workerCount": 2, "parameterServerCount": 0}, {})
    specs = [properties(distribution={**tensorflow, **more}, resources={"instanceCount": 2}) for more in stated]
    specs.append(properties(distribution={**pytorch, "processCountPerInstance": 3}, resources={"instanceCount": 2}))
    seen = [(spec.distribution, spec.processes_per_instance) for spec in map(job_spec, specs)]
    assert [("TensorFlow", 1), ("TensorFlow", 1), ("PyTorch", 3)] == seen


def test_an_mpi_job_says_how_many() -> None:
    """Nodes, processes on each, seconds."""
    spec = job_spec(
        properties(
            distribution={"distributionType": "Mpi", "processCountPerInstance": 4},
            resources={"instanceCount": 2},
            limits={"jobLimitsType": "Command", "timeout": "PT1H"},
        )
    )
    assert (2, 4, 3600.0) == (spec.instance_count, spec.processes_per_instance, spec.timeout_s)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"distribution": {"distributionType": "TensorFlow", "parameterServerCount": 1}},
            r"parameterServerCount: this emulator runs workers only",
        ),
        (
            {"distribution": {"distributionType": "TensorFlow", "workerCount": 3}},
            "3 workers do not fit 1 nodes, one each",
        ),
        ({"computeId": None}, "A computeId is required"),
        ({"limits": {"timeout": "P1M"}}, r"limits\.timeout: expected an ISO 8601 duration"),
        ({"environmentVariables": {"LANDFALL_SIMULATED_GPUS": "8"}}, "SIMULATED_GPUS is set by this emulator alone"),
        ({"command": "echo ${{inputs.x}}"}, "refers to .*inputs.x.*no input or output of the job"),
    ],
)
def test_what_the_emulator_cannot_run_is_refused_at_submission(more: dict[str, Any], message: str) -> None:
    """The status is 400, before anything is recorded."""
    with pytest.raises(ServiceError, match=message) as refused:
        job_spec(properties(**more))
    assert 400 == refused.value.status


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        (None, "azureml://datastores/workspaceblobstore/paths/azureml/r1/model/"),
        ("azureml://datastores/x/paths/${{name}}/m", "azureml://datastores/x/paths/r1/m"),
    ],
)
def test_an_output_goes_where_the_job_says_or_to_the_default_place(uri: str | None, expected: str) -> None:
    """The run's name may be part of it."""
    assert expected == output_uri("r1", "model", {"uri": uri})


def test_the_name_of_an_asset_is_in_its_id() -> None:
    """Nothing else is accepted as an id."""
    workspace = "/subscriptions/s/resourceGroups/r/providers/Microsoft.MachineLearningServices/workspaces/w"
    assert "training" == asset_name(f"{workspace}/environments/training/versions/3")
    with pytest.raises(ValueError, match="is not the ARM id of an asset version"):
        asset_name("azureml:training:3")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("train ${{inputs.data}}", "train /in"),
        ("train ${{ inputs.data }} ${{outputs.model}}/x", "train /in /out/x"),
        ("echo $HOME ${SHELL} {{inputs.data}}", "echo $HOME ${SHELL} {{inputs.data}}"),
        ("a ${{inputs.data}} ${{inputs.data}}", "a /in /in"),
    ],
)
def test_placeholders_are_replaced_and_nothing_else(command: str, expected: str) -> None:
    """The shell's own variables stay for the shell."""
    assert expected == expand(command, {"data": "/in"}, {"model": "/out"})


@pytest.mark.parametrize(
    ("command", "unknown"),
    [
        ("echo ${{inputs.data}}", []),
        ("echo ${{inputs.other}}", ["${{inputs.other}}"]),
        ("echo ${{outputs.data}} ${{search_space.x}}", ["${{outputs.data}}", "${{search_space.x}}"]),
    ],
)
def test_placeholders_that_nothing_fills_are_named(command: str, unknown: list[str]) -> None:
    """They have the order of the command."""
    assert unknown == unknown_placeholders(command, {"data"}, {"model"})
