"""Run chaos on a local twin: `python -m tests.chaos [--versions N] [--shards N] [--changed SHARE] [--seed N]`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from tests.chaos.plan import ChaosPlan
from tests.chaos.report import ChaosError, print_table, write_results
from tests.chaos.run import run_chaos
from tests.support.processes import REPOSITORY

RESULTS = REPOSITORY / ".landfall" / "chaos.json"


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if every promise held, 1 if one broke or could not be judged."""
    plan = read_plan(arguments)
    # The Functions worker takes this variable for a sign that it runs in Azure; sandboxes set it.
    os.environ.pop("CONTAINER_NAME", None)
    console = Console()
    console.print(f"{plan.versions} versions of {plan.shards} shards; repeat with SEED={plan.seed}")
    with tempfile.TemporaryDirectory(prefix="landfall-chaos-") as scratch:
        try:
            findings = run_chaos(plan, Path(scratch), lambda line: console.print(line, style="dim", markup=False))
        except ChaosError as error:
            console.print(f"a promise broke: {error}", style="bold red", markup=False)
            return 1
    print_table(console, findings)
    for broken in (finding for finding in findings if not finding.holds):
        seen = f"{broken.name}: {broken.value:g} {broken.unit or 'seen'}, promised {broken.promised:g}"
        seen += f"; but {broken.but}" if broken.but else ""
        console.print(f"a promise broke: {seen}", style="bold red", markup=False)
    write_results(RESULTS, findings, REPOSITORY)
    console.print(f"written to {RESULTS}\n")
    return 0 if all(finding.holds for finding in findings) else 1


def read_plan(arguments: list[str] | None) -> ChaosPlan:
    """Return the plan that the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="tests.chaos", description="Disturb a local twin and check that every promise holds."
    )
    parser.add_argument("--versions", type=int, default=50, help="number of dataset versions (default: %(default)s)")
    parser.add_argument("--shards", type=int, default=20, help="shards per version (default: %(default)s)")
    parser.add_argument(
        "--changed",
        type=float,
        default=0.5,
        dest="changed_fraction",
        metavar="SHARE",
        help="share of versions whose shards are overwritten, replaced or deleted (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=1, help="seed for all random choices (default: %(default)s)")
    return ChaosPlan(**vars(parser.parse_args(arguments)))


if __name__ == "__main__":
    sys.exit(main())
