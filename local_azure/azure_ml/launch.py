"""Launch of a job: its image, its process tree (guard → mpirun → ranks), its variables, and why it failed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from local_azure.azure_ml.hosts import program
from local_azure.azure_ml.nodes import Nodes, meeting_variables
from local_azure.azure_ml.runs import Run
from local_azure.azure_ml.service import JobFailure
from local_azure.azure_ml.settings import Settings
from local_azure.azure_ml.spec import JobSpec
from local_azure.azure_ml.staging import Staged
from local_azure.azure_ml.workspace import Store, asset_name, workspace_parts

_PASSED_ON = ("HOME", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME")  # and no others, which may be secrets

_FIRST_TO_FAIL = re.compile(r"(?:Process name: \[[^\]]*,|MPI_ABORT was invoked on rank )(\d+)")  # mpirun's own report
_TAIL_BYTES = 2048
_BUILT = "built-environment"


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One process to start under the guard."""

    argv: list[str]
    environment: dict[str, str]
    working_directory: Path
    launcher_log: Path


def launch_of(run: Run, spec: JobSpec, staged: Staged, virtual_environment: Path, nodes: Nodes) -> Launch:
    """Return the launch of a job."""
    kind, local_size = spec.distribution or "", str(nodes.local_size)
    rank = program("local_azure.azure_ml.rank", str(staged.directory.user_logs), kind, local_size, staged.command)
    folder = staged.directory.alias.parent
    return Launch(
        argv=nodes.placed([*_mpirun(spec, virtual_environment, nodes), *rank], folder),
        environment={**_environment(run, spec, staged, virtual_environment, nodes), **nodes.variables(folder)},
        working_directory=staged.directory.alias / "wd",
        launcher_log=staged.directory.launcher_log,
    )


def start(launch: Launch, grace_s: float) -> subprocess.Popen[bytes]:
    """Start the guard in a new session. It reads from a pipe of this process and ends when this process ends."""
    with launch.launcher_log.open("ab") as log:
        return subprocess.Popen(
            program("local_azure.guard", "--grace-s", str(grace_s), "--", *launch.argv),
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=launch.environment,
            cwd=launch.working_directory,
            start_new_session=True,
        )


def _mpirun(spec: JobSpec, virtual_environment: Path, nodes: Nodes) -> list[str]:
    if spec.processes_per_instance is None:
        return []
    mpirun = virtual_environment / "bin" / "mpirun"
    # A node may have more ranks than cores on this machine, which makes binding harmful.
    return [str(mpirun), *nodes.mpirun_options(), "--bind-to", "none"]


def _environment(run: Run, spec: JobSpec, staged: Staged, virtual_environment: Path, nodes: Nodes) -> dict[str, str]:
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {
        **passed_on,
        "PATH": f"{virtual_environment / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        "TMPDIR": str(staged.directory.alias / "tmp"),
        "PYTHONUNBUFFERED": "1",  # as the service sets it, so that logs are readable while the job runs
        "OMPI_ALLOW_RUN_AS_ROOT": "1",  # In the service, jobs run as root in their container.
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        **_service_variables(run, spec, nodes),
        **meeting_variables(spec.distribution, nodes),
        **{f"AZURE_ML_INPUT_{name}": value for name, value in staged.inputs.items()},
        **{f"AZURE_ML_OUTPUT_{name}": value for name, value in staged.outputs.items()},
        **spec.environment_variables,
    }


def _service_variables(run: Run, spec: JobSpec, nodes: Nodes) -> Mapping[str, str]:
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
        "AZ_BATCH_HOST_LIST": ",".join(nodes.addresses),
    }
    if spec.instance_count > 1:
        return {**variables, "AZ_BATCH_MASTER_NODE": f"{nodes.addresses[0]}:6000"}
    return {**variables, "AZ_BATCHAI_MPI_MASTER_NODE": nodes.addresses[0]}


def process_failure(exit_code: int, command: str, launcher_log: Path, user_logs: Path) -> JobFailure:
    """Return the failure of a run whose command ended with `exit_code`."""
    log = _log_with_the_reason(launcher_log, user_logs)
    tail = tail_of(log if log.exists() else launcher_log)
    program = command.split(maxsplit=1)[0]
    return JobFailure(
        f"Execution failed. User process '{program}' exited with status code {exit_code}. "
        f"Please check log file 'user_logs/{log.name}' for error details. Error: {tail}",
        inner="ExecutionFailed",
    )


def _log_with_the_reason(launcher_log: Path, user_logs: Path) -> Path:
    """Return the log of the rank that failed first if mpirun names it, otherwise the root's log."""
    logs = sorted(user_logs.glob("*.txt"))
    report = _FIRST_TO_FAIL.search(launcher_log.read_text(errors="replace") if launcher_log.exists() else "")
    named = user_logs / f"std_log_process_{int(report[1]):02d}.txt" if report else None
    if named is not None and named in logs:
        return named
    return logs[0] if logs else user_logs / "std_log.txt"


def tail_of(path: Path, limit_bytes: int = _TAIL_BYTES) -> str:
    """Return the last bytes of a file as text, from the start of a line if there is one."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - limit_bytes))
        text = file.read().decode(errors="replace")
    return text if size <= limit_bytes else text.partition("\n")[2]


_LIST = "import importlib.metadata as m, json; print(json.dumps([[d.name, d.version] for d in m.distributions()]))"
_PINNED = re.compile(r"([\w.-]+)(?:\[[^]]*\])? *==? *=?([\w.!+-]+)")
_WITHIN_S = 120.0


def missing_packages(conda_file: str | None, virtual_environment: Path) -> list[str]:
    """Return the pinned packages of a conda file that a virtual environment lacks or has in another version."""
    listed = (yaml.safe_load(conda_file) if conda_file else {}).get("dependencies") or []
    pins = [line for one in listed for line in (one.get("pip", []) if isinstance(one, dict) else [one])]
    if not pins:
        return []
    python = virtual_environment / "bin" / "python"
    found = subprocess.run([python, "-c", _LIST], capture_output=True, text=True, timeout=_WITHIN_S, check=True)
    has = {_plain(name): version for name, version in json.loads(found.stdout)}
    return [problem for pin in pins if (problem := _missing(pin, has))]


def _missing(pin: str, has: Mapping[str, str]) -> str | None:
    pinned = _PINNED.match(pin.rpartition("::")[2])
    name, wanted = (_plain(pinned[1]), pinned[2]) if pinned else (_plain(pin), "")
    if name in ("python", "pip") or has.get(name) == wanted:
        return None
    return f"no matching distribution for {pin} ({f'there is {has[name]}' if name in has else 'there is none'})"


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


class Images:
    """Images by environment id; thread-safe. A built image stays built."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings = settings
        self._store = store
        self._building = threading.Lock()

    def virtual_environment(self, environment_id: str) -> Path:
        """Return the virtual environment that stands for an image. Raises JobFailure if there is none."""
        name = asset_name(environment_id)
        directory = self._settings.environments.get(name)
        if directory is None:
            raise JobFailure(
                f"Image build failed: no virtual environment stands for environment {name!r}. "
                f"Start the emulator with --python-environment {name}=VENV.",
                inner="ImageBuildFailure",
            )
        environment = self._store.get("environments", environment_id) or {"properties": {}}
        if missing := missing_packages(environment["properties"].get("condaFile"), directory):
            raise JobFailure(
                f"Image build failed: packages do not install: {'; '.join(missing)}. This emulator installs nothing: "
                f"packages are those of {directory.name}.",
                inner="ImageBuildFailure",
            )
        return directory

    def build(self, environment_id: str, pause: Callable[[float], None]) -> None:
        """Wait for the duration of a build at an environment's first use; concurrent runs wait too."""
        with self._building:
            if self._store.get(_BUILT, environment_id) is None:
                pause(self._settings.environment_build_s)
                self._store.put(_BUILT, environment_id, {})
