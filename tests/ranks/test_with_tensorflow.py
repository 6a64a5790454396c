"""Runs the tests that need TensorFlow in the interpreter that has it."""

from __future__ import annotations

import os

import pytest

from local_azure.processes import wait_until
from tests.ranks.ranks import PROGRAMS
from tests.support.processes import REPOSITORY, child_environment, start_process

pytestmark = pytest.mark.distributed

FOLDER = "tests/ranks/with_tensorflow"
WITHIN_S = 840.0


@pytest.mark.parametrize("chosen", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_all_that_needs_tensorflow(tmp_path_factory: pytest.TempPathFactory, chosen: str) -> None:
    """Pytest runs once in .venv-training; its output is shown if it fails."""
    if not (PROGRAMS / "python").exists():
        pytest.skip(".venv-training is not there: run `make setup`")
    if not list(PROGRAMS.parent.glob("lib/python3*/site-packages/pytest")):
        pytest.skip(".venv-training has no pytest, so what needs TensorFlow is not tested in it")
    process = start_process(
        [
            str(PROGRAMS / "python"),
            "-m",
            "pytest",
            "-q",
            "-m",
            chosen,
            "-c",
            f"{FOLDER}/pytest.ini",
            "--rootdir",
            ".",
            FOLDER,
        ],
        log=tmp_path_factory.mktemp("with_tensorflow") / "log",
        environment=child_environment(
            PYTHONPATH=str(REPOSITORY), TF_CPP_MIN_LOG_LEVEL="3", KERAS_BACKEND="tensorflow", HOME=os.environ["HOME"]
        ),
    )
    try:
        wait_until(lambda: process.popen.poll() is not None, what="pytest ends", timeout_s=WITHIN_S)
    finally:
        process.kill()
    assert 0 == process.popen.returncode, process.output()
