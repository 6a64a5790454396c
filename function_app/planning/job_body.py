"""The request body that submits a job to Azure ML, shown in plans. A contract test compares it with the SDK's."""

from __future__ import annotations

from typing import Any

from function_app.domain.jobs import JobSpec, Workspace


def job_body(spec: JobSpec, workspace: Workspace) -> dict[str, Any]:
    """Return the body of ``PUT …/workspaces/NAME/jobs/JOB``, without empty members."""
    own = (
        f"/subscriptions/{workspace.subscription_id}/resourceGroups/{workspace.resource_group}"
        f"/providers/Microsoft.MachineLearningServices/workspaces/{workspace.name}"
    )
    return {
        "properties": {
            "jobType": "Command",
            "displayName": spec.display_name,
            "experimentName": spec.experiment,
            "command": spec.command,
            "codeId": spec.code_id,
            "environmentId": spec.environment_id,
            "computeId": f"{own}/computes/{spec.compute}",
            "inputs": {
                name: {"jobInputType": each["type"], "uri": each["uri"], "mode": "ReadOnlyMount"}
                for name, each in spec.inputs.items()
            },
            "outputs": {
                name: {"jobOutputType": each["type"], "uri": each["uri"], "mode": "ReadWriteMount"}
                for name, each in spec.outputs.items()
            },
            "distribution": _distribution(spec),
            "resources": {"instanceCount": spec.num_nodes, "shmSize": spec.shm_size},
            "limits": {"jobLimitsType": "Command", "timeout": _duration(spec.timeout_s)},
            "environmentVariables": dict(spec.environment_variables),
            "tags": dict(spec.tags),
        }
    }


def _duration(seconds: int) -> str:
    """Return an ISO 8601 duration as the SDK writes it: ``P1DT2H``."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    time = "".join(f"{number}{unit}" for number, unit in ((hours, "H"), (minutes, "M"), (rest, "S")) if number)
    return "P" + (f"{days}D" if days else "") + (f"T{time}" if time else "")


def _distribution(spec: JobSpec) -> dict[str, Any]:
    if spec.distribution == "tensorflow":
        return {"distributionType": "TensorFlow", "workerCount": spec.num_nodes, "parameterServerCount": 0}
    kind = {"mpi": "Mpi", "pytorch": "PyTorch"}[spec.distribution]
    return {"distributionType": kind, "processCountPerInstance": spec.processes_per_node}
