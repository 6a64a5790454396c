"""``landfall why --trace``: the trace of a dataset version as a tree, from the files of the local twin."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from cli.errors import CliError
from shared.safe_text import shown
from shared.traces import place_of_version

PREFIX = "landfall."
NOT_SHOWN = frozenset({"landfall.dataset_version", "landfall.event_id"})
"""Attributes that a reader of the tree knows already, or needs only for a search."""


@dataclass(frozen=True, kw_only=True)
class TracedSpan:
    """A span, as read from its file."""

    name: str
    span_id: str
    parent_id: str | None
    started_at: datetime
    ended_at: datetime
    attributes: Mapping[str, Any]
    error: str | None

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> TracedSpan:
        """Read a line of OpenTelemetry's JSON."""
        parent = members["parent_id"]
        return cls(
            name=members["name"],
            span_id=members["context"]["span_id"].removeprefix("0x"),
            parent_id=parent.removeprefix("0x") if parent else None,
            started_at=datetime.fromisoformat(members["start_time"]),
            ended_at=datetime.fromisoformat(members["end_time"]),
            attributes=members["attributes"],
            error=members["status"].get("description"),
        )


def read_trace(folder: Path, version: str) -> list[TracedSpan]:
    """Return the spans of ``dataset/version``, each once, in the order of their beginnings. Raises CliError."""
    file = folder / f"{place_of_version(version).trace_id}.jsonl"
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
        found = [TracedSpan.from_json(json.loads(line)) for line in lines]
    except FileNotFoundError:
        raise CliError(f"{version} has no trace: none of its shards was validated by this twin.") from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise CliError(f"{file}: the trace cannot be read: {error}. Remove the file.") from error
    by_id = {span.span_id: span for span in found}  # a handler that was interrupted may have written one twice
    return sorted(by_id.values(), key=lambda span: span.started_at)


def tree(spans: Sequence[TracedSpan], version: str) -> Iterator[str]:
    """Yield the lines of a trace's tree. Spans whose parent has not ended are shown directly below the first line."""
    root = place_of_version(version)
    known = {span.span_id for span in spans}
    below = defaultdict[str, list[TracedSpan]](list)
    for span in spans:
        if span.span_id != root.span_id:
            below[span.parent_id if span.parent_id in known else root.span_id].append(span)
    first = next((span for span in spans if span.span_id == root.span_id), None)
    yield f"trace {root.trace_id}"
    yield _line(first) if first else f"dataset version {shown(version)}, not closed yet"
    yield from _branches(below, root.span_id, "")


def _branches(below: Mapping[str, list[TracedSpan]], span_id: str, indent: str) -> Iterator[str]:
    spans = below.get(span_id, [])
    for number, span in enumerate(spans, start=1):
        is_last = number == len(spans)
        yield f"{indent}{'└─ ' if is_last else '├─ '}{_line(span)}"
        yield from _branches(below, span.span_id, indent + ("   " if is_last else "│  "))


def _line(span: TracedSpan) -> str:
    facts = (
        f"{name.removeprefix(PREFIX)}={value}" for name, value in span.attributes.items() if name not in NOT_SHOWN
    )
    took_s = (span.ended_at - span.started_at).total_seconds()
    error = [f"failed: {shown(span.error)}"] if span.error else []
    parts = [f"{span.started_at:%H:%M:%S.%f}"[:-3], span.name, _duration(took_s), *map(shown, facts), *error]
    return "  ".join(parts)


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def query(version: str) -> str:
    """Return the query that shows a version's trace in the Log Analytics workspace of a deployment."""
    trace = place_of_version(version).trace_id
    return f'union AppDependencies, AppTraces | where OperationId == "{trace}" | order by TimeGenerated asc'
