"""Why a job failed, in words that fit a chat message: the service's own, and the last line of the log."""

from __future__ import annotations

MAX_WORDS_CHARS = 300
_LOG_FOLLOWS = " Error: "
"""Azure ML appends the end of a log to its message; the log is kept beside the reason, whole."""


def brief_reason(error: str | None, log_tail: str | None) -> str:
    """Return one bounded line of text; what it leaves out is in the run's ``log_tail``."""
    words = " ".join((error or "Azure ML says that the job failed, and not why").split())
    if len(words) > MAX_WORDS_CHARS:
        words = _cut(words.partition(_LOG_FOLLOWS)[0])
    last = _last_line(log_tail)
    return f"{words} The log ends with: {last}" if last and last not in words else words


def _last_line(log_tail: str | None) -> str:
    lines = [line.strip() for line in (log_tail or "").splitlines() if line.strip()]
    return _cut(lines[-1]) if lines else ""


def _cut(text: str) -> str:
    return text if len(text) <= MAX_WORDS_CHARS else text[: MAX_WORDS_CHARS - 1].rstrip() + "…"
