"""The end of a job's log, and why it failed: read from the run's history, which has addresses of the log files.

The SDK offers no public way short of following a log until the job ends, so this leans on ``_runs_operations`` of the
pinned version; a test keeps watch over it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from function_app.adapters.azure_ml_workspace import MAX_DETAIL_CHARS
from function_app.adapters.connections import client_options

if TYPE_CHECKING:
    from azure.ai.ml import MLClient

MAX_CODES = 5
ROOT_LOG = re.compile(r"user_logs/std_log(?:_process_0+)?\.txt|user_logs/std_log\D*0*\.txt")
"""Of rank 0; without several processes there is only ``std_log.txt``."""


def failure(client: MLClient, name: str) -> tuple[str | None, str | None]:
    """Return the service's message for a failed job and its codes, as ``UserError/ExecutionFailed``."""
    error = getattr(_details(client, name), "error", None)
    root = getattr(error, "error", None)
    message = getattr(root, "message", None)
    words = " ".join(str(message).split())[:MAX_DETAIL_CHARS] if message else None
    return words, "/".join(_codes(root)) or None


def _codes(error: Any) -> list[str]:
    codes: list[str] = []
    while error is not None and len(codes) < MAX_CODES:
        codes += [str(error.code)[:100]] if getattr(error, "code", None) else []
        error = getattr(error, "inner_error", None)
    return codes


def log_tail(client: MLClient, name: str, *, max_bytes: int) -> str | None:
    """Return the end of the root's log, at most ``max_bytes`` of it; None where there is none."""
    log_files: dict[str, str] = getattr(_details(client, name), "log_files", None) or {}
    root_log = _root_log(log_files)
    return None if root_log is None else _download_tail(log_files[root_log], max_bytes)


def _details(client: MLClient, name: str) -> Any:
    return client.jobs._runs_operations.get_run_details(name)  # noqa: SLF001 (see the module's docstring)


def _root_log(names: Iterable[str]) -> str | None:
    """Return the root's log, or the first of whatever the user's code wrote."""
    known = sorted(names)
    roots = [name for name in known if ROOT_LOG.fullmatch(name)]
    others = [name for name in known if name.startswith("user_logs/")]
    return next(iter([*roots, *others]), None)


def _download_tail(url: str, max_bytes: int) -> str:
    """Read a blob by its signed address."""
    from azure.storage.blob import BlobClient, ExponentialRetry

    with BlobClient.from_blob_url(url, **client_options(ExponentialRetry, retry_total=2)) as blob:
        size_bytes = blob.get_blob_properties().size
        if not size_bytes:
            return ""
        start = max(0, size_bytes - max_bytes)
        content: bytes = blob.download_blob(start, max_bytes).readall()
    return content.decode(errors="replace")
