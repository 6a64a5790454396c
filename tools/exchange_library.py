"""Build the training's native library for this TensorFlow, once for each source: seconds, and nothing needs it.

Ranks of one node exchange gradients faster with it than through Horovod; where it is missing Horovod does.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path

from tools.environments import LOGS, ROOT
from tools.logged import SetupError, run_logged, say
from training_job.exchange.library import SOURCES, library_of

COMPILE = ("g++", "-O3", "-fPIC", "-shared")
"""Without warnings, of which another compiler has others; the tests have it warn."""
_FLAGS = """
import json
from tensorflow import sysconfig
print(json.dumps([sysconfig.get_compile_flags(), sysconfig.get_link_flags()]))
"""


def build(environment: Path) -> None:
    """Build unless these very sources were built before. Raises SetupError with the compiler's words."""
    if platform.machine().lower() not in {"x86_64", "amd64"}:
        return
    library = library_of(environment, tensorflow_version(environment))
    if library.exists():
        return
    log = LOGS / "rank_sums.log"
    log.unlink(missing_ok=True)
    aside = library.with_suffix(".new")
    library.parent.mkdir(parents=True, exist_ok=True)
    compile_flags, link_flags = _flags(environment)
    command = [*COMPILE, *compile_flags, "-o", str(aside), *map(str, SOURCES), *link_flags]
    run_logged("building rank_sums", command, log=log, cwd=ROOT, env=os.environ)
    for old in library.parent.glob("rank_sums-*.so"):
        old.unlink()
    aside.replace(library)
    say("rank_sums is built")


def tensorflow_version(environment: Path) -> str:
    """Return the version that is installed, without loading it. Raises SetupError."""
    found = sorted(environment.glob("lib/python*/site-packages/tensorflow_cpu-*.dist-info"))
    if not found:
        raise SetupError(f"{environment} should have tensorflow-cpu, has none: remove that folder")
    return found[-1].name.removeprefix("tensorflow_cpu-").removesuffix(".dist-info")


def _flags(environment: Path) -> list[list[str]]:
    """Ask TensorFlow what its headers and its library need."""
    asked = subprocess.run(
        [str(environment / "bin/python"), "-c", _FLAGS],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode != 0:
        raise SetupError(f"TensorFlow does not load: {asked.stderr[-1000:]}")
    flags: list[list[str]] = json.loads(asked.stdout.splitlines()[-1])
    return flags
