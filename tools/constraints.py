"""Write what is installed into both constraints.txt, after a change of the direct requirements."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tools.environments import PIP_QUIET, ROOT, TRAINING

NOT_CONSTRAINED = ("horovod", "azure-functions-runtime", "azurefunctions-extensions-base")
"""Installed in steps of their own, from other files."""

HEADER = """\
# The whole closure of {of} on Python 3.11, Linux x86-64.
# Written by: make constraints
"""


def main() -> None:
    """Both environments, each from what its own pip says."""
    write(ROOT / ".venv", ROOT / "constraints.txt", of="requirements.txt and requirements-dev.txt")
    write(
        ROOT / ".venv-training", TRAINING / "constraints.txt", of="the training environment (TensorFlow for the CPU)"
    )


def write(venv: Path, target: Path, *, of: str) -> None:
    """Name every installed distribution of `venv` with its version in `target`."""
    command = [str(venv / "bin/python"), "-m", "pip", "freeze"]
    listing = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **PIP_QUIET})
    lines = (line for line in listing.stdout.splitlines() if "==" in line)
    kept = [line for line in lines if line.split("==")[0].lower() not in NOT_CONSTRAINED]
    target.write_text(HEADER.format(of=of) + "\n".join(kept) + "\n")


if __name__ == "__main__":
    main()
