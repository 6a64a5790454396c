"""Run all benchmarks, one of them, or a family of them: `python -m bench [NAME]`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench.figures import BenchmarkError, Context, print_table, write_results
from local_azure.processes import TwinError

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
BENCHMARKS = {
    "cold_start": "cold_start.run",
    "flood": "flood.run",
    "latency": "latency.run",
    "ledger": "ledger.run",
    "own_script": "own_script.run",
    "scale": "scale.run",
    "sweep": "sweep.run",
    "telemetry": "telemetry.run",
    "training_check": "training.run_check",
    "training_horovod": "training.run_horovod",
    "training_input": "training.run_input",
    "training_loop": "training.run_loop",
    "training_memory": "training.run_memory",
    "validator": "validator.run",
    "validator_parquet": "validator_parquet.run",
}
"""Benchmark name → its function in `bench.benchmarks`; a module is imported when its benchmark runs."""


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if every promise holds, 1 if one does not or could not be measured."""
    parser = argparse.ArgumentParser(prog="bench", description="Run benchmarks and check their promises.")
    parser.add_argument(
        "name", nargs="?", help="a benchmark, or a family: `training` runs all of training_* (default: all)"
    )
    chosen = chosen_of(list(BENCHMARKS), parser.parse_args(arguments).name)
    if not chosen:
        parser.error(f"no benchmark matches; the benchmarks are {', '.join(BENCHMARKS)}")
    # If this variable is set, as sandboxes do, the Functions worker concludes that it runs in Azure.
    os.environ.pop("CONTAINER_NAME", None)
    console = Console()
    kept = [measure(name, console) for name in chosen]
    return 0 if all(kept) else 1


def chosen_of(names: Sequence[str], asked: str | None) -> list[str]:
    """Return the benchmark with this name, or all of its family: `training` selects every `training_*`."""
    return [name for name in names if asked is None or name == asked or name.startswith(f"{asked}_")]


def measure(name: str, console: Console) -> bool:
    """Run one benchmark, print and write its figures, and return whether its promises hold."""
    module, _, function = BENCHMARKS[name].partition(".")
    run = getattr(importlib.import_module(f"bench.benchmarks.{module}"), function)
    with tempfile.TemporaryDirectory(prefix=f"landfall-bench-{name}-") as scratch:
        try:
            figures = run(context(Path(scratch), console))
        except (BenchmarkError, TwinError) as error:
            console.print(f"{name} could not be measured: {error}", style="bold red", markup=False)
            return False
    print_table(console, name, figures)
    console.print(f"written to {write_results(RESULTS, name, figures, ROOT).relative_to(ROOT)}\n")
    return all(figure.holds for figure in figures)


def context(scratch: Path, console: Console) -> Context:
    """Return the context of one benchmark."""
    return Context(
        root=ROOT,
        python=Path(sys.executable),
        training_python=ROOT / ".venv-training" / "bin" / "python",
        scratch=scratch,
        say=lambda line: console.print(line, style="dim", markup=False),
    )


if __name__ == "__main__":
    sys.exit(main())
