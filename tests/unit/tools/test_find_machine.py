"""The check of the machine: one line names all missing programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from local_azure.processes import PATIENCE_S
from tests.support.processes import REPOSITORY

SHELL = Path("/bin/sh")
PROGRAMS = ("g++", "make", "git", "npm")


def install(folder: Path, name: str, body: str = "exit 0") -> None:
    """Create a program of that name in a folder."""
    path = folder / name
    path.write_text(f"#!{SHELL}\n{body}\n")
    path.chmod(0o755)


@pytest.fixture
def complete(tmp_path: Path) -> Path:
    """Return a folder with everything that set-up needs."""
    for name in PROGRAMS:
        install(tmp_path, name)
    install(tmp_path, "node", "echo v22.1.0")
    (tmp_path / "python3.11").symlink_to(sys.executable)
    return tmp_path


def look(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the script with `folder` as the only folder on the path."""
    command = [str(SHELL), str(REPOSITORY / "tools" / "find_machine.sh")]
    return subprocess.run(
        command, env={"PATH": str(folder)}, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )


def test_a_complete_machine_yields_its_python(complete: Path) -> None:
    """Its one line of output is the interpreter that make uses."""
    ended = look(complete)
    assert (0, "python3.11\n", "") == (ended.returncode, ended.stdout, ended.stderr)


def test_everything_missing_is_named_in_one_line(complete: Path) -> None:
    """A user installs everything at once."""
    for name in ("g++", "npm", "python3.11"):
        (complete / name).unlink()
    ended = look(complete)
    named = [word for word in ("python3.11", "g++", "npm") if word in ended.stderr]
    assert (1, 1, ["python3.11", "g++", "npm"]) == (ended.returncode, ended.stderr.count("\n"), named)


def test_an_old_node_is_named_with_its_version(complete: Path) -> None:
    """Debian 12 packages Node 18; Azurite wants more."""
    install(complete, "node", "echo v18.19.0")
    ended = look(complete)
    assert "node 20 or newer (found: v18.19.0)" in ended.stderr


def test_a_shim_that_leads_nowhere_is_passed_over(complete: Path) -> None:
    """Version managers put a python3.11 on the path even where none is installed."""
    (complete / "python3.11").unlink()
    install(complete, "python3.11", "exit 127")
    (complete / "python3").symlink_to(sys.executable)
    assert "python3\n" == look(complete).stdout
