"""The process tree of a job: guard → mpirun → ranks, or guard → command, and the variables they see."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from local_azure.azure_ml.runs import Run
from local_azure.azure_ml.spec import JobSpec
from local_azure.azure_ml.staging import Staged
from local_azure.azure_ml.workspace import workspace_parts

_ROOT = Path(__file__).parents[2]
_PASSED_ON = ("HOME", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME")  # nothing else: the rest may hold secrets
_SIMULATED_HOST = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One process to start under the guard."""

    argv: list[str]
    environment: dict[str, str]
    working_directory: Path
    launcher_log: Path


def launch_of(run: Run, spec: JobSpec, staged: Staged, virtual_environment: Path) -> Launch:
    """Work out how the job is started."""
    rank = _python("local_azure.azure_ml.rank", str(staged.directory.user_logs), staged.command)
    return Launch(
        argv=[*_mpirun(spec, virtual_environment), *rank],
        environment=_environment(run, spec, staged, virtual_environment),
        working_directory=staged.directory.alias / "wd",
        launcher_log=staged.directory.launcher_log,
    )


def start(launch: Launch, grace_s: float) -> subprocess.Popen[bytes]:
    """Start the guard in a session of its own. It ends with us: its standard input is our pipe."""
    with launch.launcher_log.open("ab") as log:
        return subprocess.Popen(
            _python("local_azure.guard", "--grace-s", str(grace_s), "--", *launch.argv),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=launch.environment,
            cwd=launch.working_directory,
            start_new_session=True,
        )


def _python(module: str, *arguments: str) -> list[str]:
    """Command that runs `main` of a module of ours, whatever the job's directory and variables hold."""
    imports = f"import sys; sys.path.append({str(_ROOT)!r}); from {module} import main"
    return [sys.executable, "-I", "-c", f"{imports}; sys.exit(main())", *arguments]


def _mpirun(spec: JobSpec, virtual_environment: Path) -> list[str]:
    if spec.processes_per_instance is None:
        return []
    ranks = spec.instance_count * spec.processes_per_instance
    mpirun = virtual_environment / "bin" / "mpirun"
    # The simulated nodes share this machine's cores: more ranks than cores is normal, and binding hurts.
    return [str(mpirun), "-np", str(ranks), "--oversubscribe", "--bind-to", "none"]


def _environment(run: Run, spec: JobSpec, staged: Staged, virtual_environment: Path) -> dict[str, str]:
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {
        **passed_on,
        "PATH": f"{virtual_environment / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        "TMPDIR": str(staged.directory.alias / "tmp"),
        "PYTHONUNBUFFERED": "1",  # as the service sets it: a log is readable while the job runs
        "OMPI_ALLOW_RUN_AS_ROOT": "1",  # jobs of the service run as root in their container
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        **_service_variables(run, spec),
        **{f"AZURE_ML_INPUT_{name}": value for name, value in staged.inputs.items()},
        **{f"AZURE_ML_OUTPUT_{name}": value for name, value in staged.outputs.items()},
        **spec.environment_variables,
    }


def _service_variables(run: Run, spec: JobSpec) -> Mapping[str, str]:
    parts = workspace_parts(run.workspace_id)
    variables = {
        "AZUREML_RUN_ID": run.name,
        "AZUREML_ROOT_RUN_ID": run.name,
        "AZUREML_ARM_SUBSCRIPTION": parts["subscription"],
        "AZUREML_ARM_RESOURCEGROUP": parts["group"],
        "AZUREML_ARM_WORKSPACE_NAME": parts["workspace"],
        "AZUREML_ARM_PROJECT_NAME": run.experiment_name,
        "AZUREML_EXPERIMENT_NAME": run.experiment_name,
        "AZUREML_EXPERIMENT_ID": run.experiment_id,
        "AZUREML_NODE_COUNT": str(spec.instance_count),
        "AZ_BATCH_HOST_LIST": ",".join([_SIMULATED_HOST] * spec.instance_count),
    }
    if spec.instance_count > 1:
        return {**variables, "AZ_BATCH_MASTER_NODE": f"{_SIMULATED_HOST}:6000"}
    return {**variables, "AZ_BATCHAI_MPI_MASTER_NODE": _SIMULATED_HOST}
