"""Run all benchmarks, one of them, or a family of them: `python -m bench [NAME]`."""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench import benchmarks
from bench.figures import BenchmarkError, Context, print_table, write_results

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if every promise holds, 1 if one does not or could not be measured."""
    names = sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__))
    parser = argparse.ArgumentParser(prog="bench", description="Run benchmarks and check their promises.")
    parser.add_argument(
        "name", nargs="?", help="a benchmark, or a family: `training` runs all of training_* (default: all)"
    )
    chosen = chosen_of(names, parser.parse_args(arguments).name)
    if not chosen:
        parser.error(f"no benchmark matches; the benchmarks are {', '.join(names)}")
    # The Functions worker takes this variable for a sign that it runs in Azure; sandboxes set it.
    os.environ.pop("CONTAINER_NAME", None)
    console = Console()
    kept = [measure(name, console) for name in chosen]
    return 0 if all(kept) else 1


def chosen_of(names: Sequence[str], asked: str | None) -> list[str]:
    """Return the benchmark of that name, or its family: `training` means all of `training_*`."""
    return [name for name in names if asked is None or name == asked or name.startswith(f"{asked}_")]


def measure(name: str, console: Console) -> bool:
    """Run one benchmark, print and write its figures, and return whether its promises hold."""
    module = importlib.import_module(f"{benchmarks.__name__}.{name}")
    with tempfile.TemporaryDirectory(prefix=f"landfall-bench-{name}-") as scratch:
        try:
            figures = module.run(context(Path(scratch), console))
        except BenchmarkError as error:
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
