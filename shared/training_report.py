"""The training report, which the root writes at the end of a training, and on which the gate decides."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

FORMAT_VERSION = 1
FILE_NAME = "training_report.json"
MAX_REPORT_BYTES = 4 << 20

# -- results of each validation example, in a Parquet file next to the report: docs/registry.md ------------------
EXAMPLES_NAME = "example_results.parquet"
MAX_EXAMPLES = 1_000_000
"""Maximum number of rows; if there are more examples, the rows are a sample."""
MAX_EXAMPLES_BYTES = 64 << 20
NUM_EXAMPLES_KEY = b"landfall.num_examples"
"""Key of the file's metadata for the number of evaluated examples, if the rows are a sample."""
SHARD, RECORD = "shard", "record"
"""Columns: name of the shard in the manifest, and number of the record in it, from 0."""
LABEL, SCORE = "label", "score"
"""Columns for the area under the curve; every other column is a metric without ``val_``."""


class TrainingReportError(ValueError):
    """A training report could not be read; the message has the member, the expected and the actual value."""


@dataclass(frozen=True, kw_only=True)
class TrainingReport:
    """The evidence of one attempt. Metrics are averages over all ranks, weighted by examples."""

    run_id: str
    fingerprint: str
    metrics: Mapping[str, float]
    """Metrics of the exported model: ``val_accuracy``, ``val_loss``, ``accuracy``, ``loss`` …"""
    epochs: tuple[Mapping[str, float], ...]
    """One mapping per epoch: ``epoch``, ``loss``, ``accuracy``, ``val_*``, ``images_per_s``, ``duration_s``."""
    world_size: int
    num_nodes: int
    images_per_s: float | None
    """Throughput of all ranks together, after timing warm-up; None if nothing was timed."""
    rank_plan: Mapping[str, Any]
    seed: int
    versions: Mapping[str, str]
    started_at: str
    ended_at: str
    contents_checked: bool = False
    """Whether every shard that was read had the content in the manifest."""
    device: str | None = None
    """The device of every rank: ``gpu``, ``cpu`` or ``simulated``; None if the report does not state it."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Further facts for people, on which no decision depends."""

    def to_json(self) -> str:
        """Return the report as JSON text."""
        return json.dumps({"format_version": FORMAT_VERSION, **asdict(self)}, indent=1, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes, *, plain: TrainingReport | None = None) -> TrainingReport:
        """Read a report. Raises TrainingReportError; a metric that is not a finite number is refused.

        A throughput that is none counts as not timed: no decision depends on it.

        ``plain``: values for a user's script that writes only its metrics, such as ``{"val_accuracy": 0.93}``.
        """
        if len(text) > MAX_REPORT_BYTES:
            raise TrainingReportError(f"training report: {len(text)} bytes exceed the limit of {MAX_REPORT_BYTES}")
        try:
            members = json.loads(text)
            if plain is not None and "format_version" not in members:
                _check_metrics(members)
                return replace(plain, metrics=members)
            _check_format(members.pop("format_version"))
            report = cls(**{**members, "epochs": tuple(members["epochs"])})
            _check_metrics(report.metrics)
            _check_fingerprint(report.fingerprint)
            report = replace(report, images_per_s=_rate(report.images_per_s))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            raise TrainingReportError(f"not a training report: {error}") from error
        return report


def _check_format(version: Any) -> None:
    if version != FORMAT_VERSION:
        raise ValueError(f"format_version: expected {FORMAT_VERSION}, got {version!r}")


def _check_metrics(metrics: Mapping[str, Any]) -> None:
    for name, value in metrics.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ValueError(f"metric {name} is {value!r}; it must be a finite number")


def _check_fingerprint(stated: Any) -> None:
    if not isinstance(stated, str):
        raise TypeError(f"fingerprint is of type {type(stated).__name__}; it must be a text")


def _rate(stated: Any) -> float | None:
    is_number = isinstance(stated, int | float) and not isinstance(stated, bool)
    return float(stated) if is_number and math.isfinite(stated) else None


_NAME, _NUMBER = r"[A-Za-z_][A-Za-z0-9_]{0,63}", r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?"
_PAIR = re.compile(rf"({_NAME})=({_NUMBER})")
_PRINTED = re.compile(rf"{_NAME}={_NUMBER}(?:(?:, ?| ){_NAME}={_NUMBER})*")
MAX_PRINTED_CHARS = 1000
MAX_PRINTED_METRICS = 100


def printed_metrics(log: str) -> dict[str, float]:
    """Return metrics from lines that only have ``val_accuracy=0.93, val_loss=0.2``; the last value of each counts."""
    found: dict[str, float] = {}
    for line in log.splitlines():
        if len(line) <= MAX_PRINTED_CHARS and _PRINTED.fullmatch(line.strip()):
            values = {name: float(value) for name, value in _PAIR.findall(line)}
            found |= {name: value for name, value in values.items() if math.isfinite(value)}
            found = dict(list(found.items())[:MAX_PRINTED_METRICS])
    return found
