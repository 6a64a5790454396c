"""Why a job's process ended badly, in the words of the service, with the end of the log that tells."""

from __future__ import annotations

import re
from pathlib import Path

from local_azure.azure_ml.errors import JobFailure

_FIRST_TO_FAIL = re.compile(r"Process name: \[[^\]]*,(\d+)\]")  # mpirun's own report
_TAIL_BYTES = 2048


def process_failure(exit_code: int, command: str, launcher_log: Path, user_logs: Path) -> JobFailure:
    """Failure of a run whose command ended with `exit_code`."""
    log = _telling_log(launcher_log, user_logs)
    tail = tail_of(log if log.exists() else launcher_log)
    program = command.split(maxsplit=1)[0]
    return JobFailure(
        f"Execution failed. User process '{program}' exited with status code {exit_code}. "
        f"Please check log file 'user_logs/{log.name}' for error details. Error: {tail}",
        inner="ExecutionFailed",
    )


def _telling_log(launcher_log: Path, user_logs: Path) -> Path:
    """Log of the rank that failed first, where mpirun says which; else of the root."""
    logs = sorted(user_logs.glob("*.txt"))
    said = _FIRST_TO_FAIL.search(launcher_log.read_text(errors="replace") if launcher_log.exists() else "")
    named = user_logs / f"std_log_process_{int(said[1]):02d}.txt" if said else None
    if named is not None and named in logs:
        return named
    return logs[0] if logs else user_logs / "std_log.txt"


def tail_of(path: Path, limit_bytes: int = _TAIL_BYTES) -> str:
    """Last bytes of a file as text, from a line's start where there is one."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - limit_bytes))
        text = file.read().decode(errors="replace")
    return text if size <= limit_bytes else text.partition("\n")[2]
