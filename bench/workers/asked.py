"""The command line of the programs that train for a benchmark."""

from __future__ import annotations

import argparse
import os
import sys

from bench.workers.gate import Gate
from shared.job_arguments import JobArguments

_LAUNCHER = ("OMPI_COMM_", "OMPI_UNIVERSE", "OMPI_MCA_orte", "PMIX_", "PRTE_", "PMI_")
"""What mpirun tells its ranks; a process that is told nothing is MPI's singleton."""


def asked() -> tuple[Gate, JobArguments]:
    """Return the gate, this process being bound to its core, and the training's own arguments, which follow `--`."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--gate", required=True, help="path of the benchmark's socket")
    parser.add_argument("--cores", required=True, help="those that are watched, one for each rank, between commas")
    parser.add_argument("--apart", action="store_true", help="let every rank be a world of its own")
    own, of_training = sys.argv[1 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
    options = parser.parse_args(own)
    gate = Gate(options.gate, [int(core) for core in options.cores.split(",")])
    if options.apart:
        for name in [name for name in os.environ if name.startswith(_LAUNCHER)]:
            del os.environ[name]
    return gate, JobArguments.from_argv(of_training)
