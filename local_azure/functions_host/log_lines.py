"""Log records as lines for people: time, level, function, logger, message, extra fields."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

QUIET_LOGGERS = ("azure", "aiohttp.access", "urllib3", "asyncio", "httpx")
"""They log every request at INFO, which hides what the app says."""


class LineFormatter(logging.Formatter):
    """``10:00:00.123 INFO  shard_uploaded function_app.ingest: Shard accepted  shard=train-…``."""

    def __init__(self, running: Mapping[str, str]) -> None:
        """`running` maps invocation ids to function names, and may change."""
        super().__init__()
        self._running = running

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; an exception's stack trace, where the app logs one, follows on lines of its own."""
        moment = datetime.fromtimestamp(record.created, tz=UTC).strftime("%H:%M:%S.%f")[:-3]
        where = " ".join(part for part in (self._function_name(), record.name) if part)
        extra = "".join(f"  {key}={value}" for key, value in vars(record).items() if key not in STANDARD_FIELDS)
        line = f"{moment} {record.levelname:<7} {where}: {record.getMessage()}{extra}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line

    def _function_name(self) -> str:
        from azure_functions_runtime import invocation_id_cv

        invocation_id = invocation_id_cv.get()
        return self._running.get(str(invocation_id), "") if invocation_id else ""


def configure_logging(running: Mapping[str, str], *, verbose: bool) -> None:
    """Send all records to standard output as lines; INFO and above, or everything when ``verbose``."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(LineFormatter(running))
    logging.basicConfig(handlers=[handler], level=logging.DEBUG if verbose else logging.INFO, force=True)
    for name in QUIET_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)
