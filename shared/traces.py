"""Traces, one for each dataset version. Ids are derived from names, so that no process has to store them.

After a duplicate, a restart or a late event, the handler computes the same ids and adds to the same trace.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TRACEPARENT_VARIABLE = "TRACEPARENT"
"""Environment variable of a job, by OpenTelemetry's convention for environment variables as carriers."""
TRACEPARENT = "traceparent"
"""Member of reports and events, by the W3C's recommendation and the CloudEvents extension for tracing."""
_TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A span's place: the ids of its trace and of the span, as lower-case hexadecimal digits."""

    trace_id: str
    span_id: str

    def new_child(self) -> Place:
        """Return a place in the same trace with a new id."""
        return Place(trace_id=self.trace_id, span_id=secrets.token_hex(8))

    @property
    def traceparent(self) -> str:
        """The place in the W3C's format, marked as sampled."""
        return f"00-{self.trace_id}-{self.span_id}-01"


def place_of_version(version: object) -> Place:
    """Return the place of the span of ``dataset/version``, the root of its trace."""
    return _place(str(version), "version")


def place_of_generation(version: object, number: int) -> Place:
    """Return the place of the span of a version's n-th closing."""
    return _place(str(version), f"generation/{number}")


def place_of_run(version: object, run_id: str) -> Place:
    """Return the place of the span of a run on ``dataset/version``."""
    return _place(str(version), f"run/{run_id}")


def place_of_content(content: Mapping[str, Any]) -> Place | None:
    """Return the place of the run or version in a notification; None if it names neither."""
    dataset, version, run_id = (content.get(name) for name in ("dataset", "version", "run_id"))
    if not dataset or not version:
        return None
    name = f"{dataset}/{version}"
    return place_of_run(name, str(run_id)) if run_id else place_of_version(name)


def read_traceparent(text: object) -> Place | None:
    """Read a traceparent from outside; None if it is malformed."""
    match = _TRACEPARENT.fullmatch(text) if isinstance(text, str) else None
    return Place(trace_id=match[1], span_id=match[2]) if match else None


def _place(version: str, span: str) -> Place:
    trace = hashlib.sha256(f"landfall/{version}".encode("utf-8", "surrogatepass"))
    own = hashlib.sha256(f"landfall/{version}/{span}".encode("utf-8", "surrogatepass"))
    return Place(trace_id=trace.hexdigest()[:32], span_id=own.hexdigest()[:16])
