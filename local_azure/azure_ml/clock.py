"""The one clock for facts, and the two shapes in which the service writes times and durations."""

from __future__ import annotations

import datetime as dt
import re

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.\d+)?S)?)?")


def utcnow() -> dt.datetime:
    """Give the present moment, aware, in UTC."""
    return dt.datetime.now(dt.UTC)


def iso(moment: dt.datetime) -> str:
    """Write a moment as Azure ML does: seven decimals, Z."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "0Z"


def duration_s(text: str) -> float:
    """Seconds of an ISO 8601 duration such as PT1H30M or P1DT2S; ValueError for anything else."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise ValueError(f"expected an ISO 8601 duration such as PT30M, saw {text!r}")
    days, hours, minutes, seconds = (int(group or 0) for group in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
