"""CPU time of `import function_app` in a new process, which the host spends at every cold start."""

from __future__ import annotations

import os
import resource
import subprocess

from bench.figures import BenchmarkError, Context, Figure, median

SAMPLES = 9
MAX_CPU_S = 0.4
"""An instance imports the app before it handles its first event."""

HEAVY = ("azure.ai.ml", "fastapi", "pyarrow", "numpy")
COUNT_HEAVY = f"import sys, function_app; sys.exit(sum(name in sys.modules for name in {HEAVY!r}))"


def run(context: Context) -> list[Figure]:
    """Measure three programs in turns, so that a slowdown of the machine affects all of them."""
    programs = ("pass", "import function_app", "import function_app, azure.ai.ml")
    for program in programs:  # The first run compiles to bytecode, which a deployment already contains.
        cpu_s(context, program)
    rounds = [[cpu_s(context, program) for program in programs] for _ in range(SAMPLES)]
    interpreter, app, with_sdk = (median(samples) for samples in zip(*rounds, strict=True))
    return [
        Figure(name="import function_app", value=app, unit="s of CPU", at_most=MAX_CPU_S),
        Figure(name="the same with azure.ai.ml on top, against it", value=with_sdk / app, unit="ratio", at_least=2.0),
        Figure(name="heavy modules loaded", value=float(heavy_modules(context)), unit="modules", at_most=0.0),
        Figure(name="the interpreter alone", value=interpreter, unit="s of CPU"),
    ]


def cpu_s(context: Context, program: str) -> float:
    """Return user plus system time of a new interpreter that runs `program`. Raises BenchmarkError if it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    status = run_status(context, program)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if status != 0:
        raise BenchmarkError(f"{program!r} ended with status {status}; run it by hand: python -c {program!r}")
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def heavy_modules(context: Context) -> int:
    """Return how many modules the app loads at its start although they should load at their first use."""
    return run_status(context, COUNT_HEAVY)


def run_status(context: Context, program: str) -> int:
    """Return the exit status of a new interpreter that runs `program` in the clone, without app settings."""
    env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    command = [str(context.python), "-c", program]
    ended = subprocess.run(command, cwd=context.root, env=env, stdout=subprocess.DEVNULL, check=False, timeout=60)
    return ended.returncode
