"""The result of a chaos run: a table for people and a JSON file, both from the same findings."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


class ChaosError(Exception):
    """A chaos run could not start, or did not come to an end; the message says what is unfinished."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One number that was seen and, for a promise, the number that it must be."""

    name: str
    value: float
    unit: str = ""
    promised: float | None = None
    but: str = ""
    """What is not as promised, for who looks for the cause."""

    @property
    def holds(self) -> bool:
        """Whether the promise was kept; a finding without one always holds."""
        return self.promised is None or self.value == self.promised


def print_table(console: Console, findings: Sequence[Finding]) -> None:
    """Print one row per finding; broken promises stand out in red."""
    table = Table(title="chaos", title_justify="left")
    table.add_column("finding")
    table.add_column("value", justify="right")
    for heading in ("unit", "promised", ""):
        table.add_column(heading)
    for finding in findings:
        promised = "" if finding.promised is None else f"{finding.promised:g}"
        verdict = "" if finding.promised is None else "holds" if finding.holds else "DOES NOT HOLD"
        style = None if finding.holds else "bold red"
        table.add_row(finding.name, f"{finding.value:.4g}", finding.unit, promised, verdict, style=style)
    console.print(table)


def write_results(path: Path, findings: Sequence[Finding], root: Path) -> None:
    """Write all findings to ``path`` as JSON, with the commit of the clone at ``root``."""
    rows = [{**asdict(finding), "holds": finding.holds} for finding in findings]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"commit": _commit(root), "findings": rows}, indent=2) + "\n", encoding="utf-8")


def _commit(root: Path) -> str:
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty=+changes", "--abbrev=40", "--exclude=*"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"
