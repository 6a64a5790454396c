"""A training whose outputs are mounted as Azure ML mounts them; all trainings of these tests are, but for errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_azure.azure_ml.mounts import MountRules, compiler
from shared.exit_codes import ExitCode
from tests.ranks.ranks import train
from tests.ranks.versions import ClosedVersion, job_arguments

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.skipif(compiler() is None, reason="the mount needs a C compiler"),
]


def test_a_training_survives_a_first_call_that_fails_for_every_output_and_torn_pointers(
    digits: ClosedVersion, tmp_path: Path
) -> None:
    """It tries again: model, report, summaries and checkpoints are whole.

    The root alone reads checkpoints: the next attempt passes over those whose pointers are torn, all ranks continue
    where the root does, and the log says what was passed over.
    """
    rules = MountRules(errors_permille=1000)
    first = train(2, job_arguments(digits, tmp_path, epochs=2, tensorboard=True), rules=rules)
    assert ExitCode.SUCCESS == first.exit_code, first.log
    assert first.log.count("input/output error of the emulated mount") > 10
    newest = sorted((tmp_path / "checkpoints").glob("pointer-*.json"))[-2:]
    for pointer in newest:
        pointer.write_bytes(pointer.read_bytes()[:40])
    resumed = train(2, job_arguments(digits, tmp_path, epochs=2), rules=rules)
    assert ExitCode.SUCCESS == resumed.exit_code, resumed.log
    assert (2, 22) == (len(resumed.report.epochs), resumed.report.details["resumed_at_step"])
    assert f"is used, not {newest[1].name}" in resumed.log


@pytest.mark.slow
def test_outputs_that_cannot_be_written_end_the_training_with_the_files_name(
    digits: ClosedVersion, tmp_path: Path
) -> None:
    """After a few tries, in one paragraph, with an exit code of its own."""
    outcome = train(2, job_arguments(digits, tmp_path, epochs=1), rules=MountRules(always_fails=True))
    assert ExitCode.OUTPUT == outcome.exit_code, outcome.log
    assert "training failed (rank 0): " in outcome.log
    assert "cannot be written: Input/output error, 5 times in 3 s. Look at the storage account" in outcome.log
    assert "Traceback" not in outcome.log
    assert [] == list((tmp_path / "checkpoints").glob("*.json"))
