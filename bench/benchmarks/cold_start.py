"""What the host pays at every cold start: the CPU time of `import function_app` in a fresh process."""

from __future__ import annotations

import os
import resource
import subprocess

from bench.figures import BenchmarkError, Context, Figure, median

SAMPLES = 9
MAX_CPU_S = 0.4
"""From the design. What an instance needs to index the functions is added to the first event's waiting time."""

HEAVY = ("azure.ai.ml", "fastapi", "pyarrow", "numpy")
COUNT_HEAVY = f"import sys, function_app; sys.exit(sum(name in sys.modules for name in {HEAVY!r}))"


def run(context: Context) -> list[Figure]:
    """Measure three programs in turn, so that a machine getting slower slows all of them."""
    programs = ("pass", "import function_app", "import function_app, azure.ai.ml")
    for program in programs:  # the first run compiles to bytecode, which a deployment brings along
        cpu_s(context, program)
    rounds = [[cpu_s(context, program) for program in programs] for _ in range(SAMPLES)]
    interpreter, app, with_sdk = (median(samples) for samples in zip(*rounds, strict=True))
    return [
        Figure(name="import function_app", value=app, unit="s of CPU", at_most=MAX_CPU_S),
        Figure(name="the same with azure.ai.ml on top, against it", value=with_sdk / app, unit="ratio", at_least=2.0),
        Figure(name="heavy modules loaded", value=float(heavy_modules(context)), unit="modules", at_most=0.0),
        Figure(name="of it the bare interpreter", value=interpreter, unit="s of CPU"),
    ]


def cpu_s(context: Context, program: str) -> float:
    """User and system time of a fresh interpreter running `program`. Raises BenchmarkError when it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    status = run_status(context, program)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if status != 0:
        raise BenchmarkError(f"{program!r} ended with status {status}; run it by hand: python -c {program!r}")
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def heavy_modules(context: Context) -> int:
    """How many of the modules that must wait for their first use are loaded with the app."""
    return run_status(context, COUNT_HEAVY)


def run_status(context: Context, program: str) -> int:
    """The exit status of a fresh interpreter that runs `program` in the clone, without any app setting."""
    env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    command = [str(context.python), "-c", program]
    ended = subprocess.run(command, cwd=context.root, env=env, stdout=subprocess.DEVNULL, check=False, timeout=60)
    return ended.returncode
