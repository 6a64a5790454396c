"""Raise chaos on a twin and see what is left: `python -m bench.chaos [--versions N] [--shards N] [--seed N]`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from bench.__main__ import RESULTS, ROOT, context
from bench.chaos.plan import ChaosPlan
from bench.chaos.run import raise_chaos
from bench.figures import BenchmarkError
from bench.report import print_table, write_results


def main(arguments: list[str] | None = None) -> int:
    """0 when every promise held, 1 when one broke or could not be judged."""
    plan = read_plan(arguments)
    # The Functions worker takes this variable for a sign that it runs in Azure; sandboxes set it.
    os.environ.pop("CONTAINER_NAME", None)
    console = Console()
    console.print(f"{plan.versions} versions of {plan.shards} shards; repeat with SEED={plan.seed}")
    with tempfile.TemporaryDirectory(prefix="landfall-chaos-") as scratch:
        try:
            figures = raise_chaos(plan, context(Path(scratch), console))
        except BenchmarkError as error:
            console.print(f"a promise broke: {error}", style="bold red", markup=False)
            return 1
    print_table(console, "chaos", figures)
    console.print(f"written to {write_results(RESULTS, 'chaos', figures, ROOT).relative_to(ROOT)}\n")
    return 0 if all(figure.holds for figure in figures) else 1


def read_plan(arguments: list[str] | None) -> ChaosPlan:
    """Return the plan that the command line asks for."""
    parser = argparse.ArgumentParser(prog="bench.chaos", description="Raise chaos on a twin, and see what is left.")
    parser.add_argument("--versions", type=int, default=50, help="dataset versions, each with a pipeline of its own")
    parser.add_argument("--shards", type=int, default=20, help="shards of each version")
    parser.add_argument("--seed", type=int, default=1, help="of everything random")
    return ChaosPlan(**vars(parser.parse_args(arguments)))


if __name__ == "__main__":
    sys.exit(main())
