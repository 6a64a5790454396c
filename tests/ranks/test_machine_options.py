"""The options of the machines, all of them in one training: each must take effect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shared.exit_codes import ExitCode
from tests.ranks.ranks import Outcome, program, train, variables
from tests.ranks.versions import ClosedVersion, job_arguments

pytestmark = [pytest.mark.distributed, pytest.mark.slow]


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which each rank writes the settings under which it builds its model."""
    return tmp_path_factory.mktemp("notes")


@pytest.fixture(scope="module")
def outcome(digits: ClosedVersion, tmp_path_factory: pytest.TempPathFactory, notes: Path) -> Outcome:
    """Two ranks, four epochs, and every option at once."""
    options: dict[str, Any] = {
        "epochs": 4,
        "learning_rate": 0.002,
        "model_module": program("looks_around"),
        "mixed_precision": "float16",
        "fp16_compression": True,
        "deterministic_ops": True,
        "fusion_threshold_mb": 16,
        "cycle_time_ms": 2.5,
        "autotune": True,
        "checkpoint_minutes": 1e-6,
        "checkpoints_kept": 1000,
    }
    tuning = {
        "HOROVOD_AUTOTUNE_LOG": notes / "autotune.csv",
        "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": 1,
        "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": 1,
    }
    arguments = job_arguments(digits, tmp_path_factory.mktemp("options"), **options)
    ended = train(2, arguments, launcher=variables(NOTES_FOLDER=notes, **tuning))
    assert 0 == ended.exit_code, ended.log
    return ended


def test_float16_with_a_scaled_loss_learns(outcome: Outcome) -> None:
    """The scale, which changes during the training, is in the checkpoint."""
    assert outcome.report.metrics["val_accuracy"] >= 0.9
    assert [1] == [v.size for name, v in outcome.variables.items() if name.endswith("dynamic_scale")]


def test_every_rank_computes_as_asked(outcome: Outcome, notes: Path) -> None:
    """Every rank computes in float16, with kernels whose results are reproducible to the bit."""
    del outcome
    for rank in range(2):
        settings = json.loads((notes / f"settings-{rank}.json").read_text())
        assert ("mixed_float16", True) == (settings["policy"], settings["deterministic"])


def test_horovod_itself_works_with_the_threshold_and_the_cycle_and_tunes_the_rest(
    outcome: Outcome, notes: Path
) -> None:
    """Horovod's autotune log shows that the values of the options stay fixed."""
    del outcome
    header, *tried = (notes / "autotune.csv").read_text().splitlines()
    samples = [dict(zip(header.split(","), line.split(","), strict=True)) for line in tried]
    assert samples
    assert {(2.5, 16.0)} == {
        (float(sample["cycle_time_ms"]), float(sample["tensor_fusion_threshold"])) for sample in samples
    }


def test_checkpoints_by_the_minute_fall_into_the_middle_of_epochs(outcome: Outcome) -> None:
    """An interval of a fraction of a second makes a checkpoint due after every step, on all ranks."""
    steps = {int(path.stem.split("-")[1]) for path in (outcome.output / "checkpoints").glob("checkpoint-*.npz")}
    assert set(range(1, 4 * 22 + 1)) == steps


@pytest.mark.parametrize("num_gpus", [2, 1])
def test_each_rank_is_pinned_to_the_gpu_of_its_local_rank(
    digits: ClosedVersion, tmp_path: Path, num_gpus: int
) -> None:
    """TensorFlow's GPU functions are simulated; with one GPU for two ranks the job says what is wrong."""
    outcome = train(
        2,
        job_arguments(digits, tmp_path, epochs=1),
        instead=[program("played_gpus")],
        launcher=variables(NOTES_FOLDER=tmp_path, NUM_GPUS=num_gpus),
    )
    if num_gpus == 1:
        assert 1 == outcome.log.count("Local rank 1 has no GPU of its own: its node has 1."), outcome.log
        assert (ExitCode.MISSING_RESOURCES, False) == (outcome.exit_code, "Traceback" in outcome.log)
        return
    assert 0 == outcome.exit_code, outcome.log
    assert "/physical_device:GPU:0" == outcome.report.details["hardware"]["gpu"]
    for rank in range(2):
        gpu = f"/physical_device:GPU:{rank}"
        expected = {"growth": [gpu, True], "visible GPU": [gpu]}
        assert expected == json.loads((tmp_path / f"gpu-{rank}.json").read_text())
