"""The command line of the programs that train for a benchmark."""

from __future__ import annotations

import argparse
import sys

from bench.workers.gate import Gate
from shared.job_arguments import JobArguments


def asked() -> tuple[Gate, JobArguments]:
    """Return the gate, this process being bound to its core, and the training's own arguments, which follow `--`."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--gate", required=True, help="path of the benchmark's socket")
    parser.add_argument("--cores", required=True, help="those that are watched, one for each rank, between commas")
    own, of_training = sys.argv[1 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
    options = parser.parse_args(own)
    gate = Gate(options.gate, [int(core) for core in options.cores.split(",")])
    return gate, JobArguments.from_argv(of_training)
