"""Tell what was measured: a table for people, a JSON file for machines."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.figures import Figure


def print_table(console: Console, benchmark: str, figures: Sequence[Figure]) -> None:
    """One row per figure; a promise that was not kept stands out."""
    table = Table(title=benchmark, title_justify="left")
    table.add_column("figure")
    table.add_column("value", justify="right")
    for heading in ("unit", "promised", ""):
        table.add_column(heading)
    for figure in figures:
        verdict = "" if not figure.bound else "holds" if figure.holds else "DOES NOT HOLD"
        style = None if figure.holds else "bold red"
        table.add_row(figure.name, f"{figure.value:.4g}", figure.unit, figure.bound, verdict, style=style)
    console.print(table)


def write_results(folder: Path, benchmark: str, figures: Sequence[Figure], root: Path) -> Path:
    """Write `<folder>/<benchmark>.json`, whole or not at all, and return its path."""
    results = {
        "benchmark": benchmark,
        "commit": commit(root),
        "machine": machine(),
        "figures": [figure.as_json() for figure in figures],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path, aside = folder / f"{benchmark}.json", folder / f"{benchmark}.json.new"
    aside.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    aside.replace(path)
    return path


def commit(root: Path) -> str:
    """The commit that was measured, with `+changes` when the tree differs from it; `unknown` outside git."""
    try:
        head = _git(root, "rev-parse", "HEAD")
        return f"{head}+changes" if _git(root, "status", "--porcelain") else head
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine() -> dict[str, Any]:
    """What a reader needs to compare: processor, cores, memory, Python. No name of the machine."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def _processor() -> str:
    with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
        models = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
        return next(models, "unknown")


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()
