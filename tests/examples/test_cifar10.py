"""`cifar10-cnn`, from CIFAR-10's python batches to the end of the run."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from tests.examples.journeys import Journey, ended, landfall, upload_shards
from tests.support.twin import TwinUnderTest

pytestmark = [pytest.mark.slow, pytest.mark.twin, pytest.mark.distributed]

PER_BATCH = 64
BATCHES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]


def write_batches(folder: Path) -> Path:
    """Write pickles as CIFAR-10's python version has them: rows of 3,072 bytes, a plane for each colour."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for name in BATCHES:
        labels = generator.integers(0, 10, PER_BATCH)
        data = generator.integers(0, 40, (PER_BATCH, 3072)) + 20 * labels[:, None]
        members = {b"data": data.astype(np.uint8), b"labels": labels.tolist(), b"batch_label": name.encode()}
        (folder / name).write_bytes(pickle.dumps(members, protocol=2))
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": [b"%d" % n for n in range(10)]}, protocol=2))
    return folder


@pytest.fixture(scope="module")
def journey(twin: TwinUnderTest, tmp_path_factory: pytest.TempPathFactory) -> Journey:
    """A run on 320 images, evaluated on 64."""
    folder = tmp_path_factory.mktemp("cifar10")
    batches = write_batches(folder / "cifar-10-batches-py")
    landfall("pack", "cifar10", batches, "--to", folder / "shards", "--no-init", "--shards", 4)
    upload_shards(twin, folder / "shards", "cifar10-cnn", "cifar10/v1")
    return ended(twin, "cifar10/v1", folder / "outputs")


def test_two_ranks_train_on_all_batches_and_are_judged_by_the_test(journey: Journey) -> None:
    """Raw pixels as they are distributed; 320 / (2 x 16) steps in each epoch."""
    training, validation = (journey.report.rank_plan[name] for name in ("training", "validation"))
    assert (2, ("train", 320, 10), ("test", 64)) == (
        journey.report.world_size,
        (training["split"], training["num_records"], training["steps"]),
        (validation["split"], validation["num_records"]),
    )
    assert {"val_accuracy", "val_top5_accuracy"} <= journey.report.metrics.keys()


def test_the_gate_has_decided_with_its_reason(journey: Journey) -> None:
    """Registered where the accuracy is reached, otherwise the reason has both figures."""
    accuracy = journey.report.metrics["val_accuracy"]
    expected = "registered" if accuracy >= 0.65 else "not_registered"
    reason = None if accuracy >= 0.65 else f"val_accuracy: expected at least 0.65, got {accuracy:.6g}"
    assert (expected, reason) == (journey.run["state"], journey.run["reason"])


def test_horovods_timeline_shows_what_was_exchanged(journey: Journey) -> None:
    """It is JSON, and gradients were reduced over both ranks."""
    timeline = json.loads((journey.outputs / "report" / "horovod_timeline.json").read_bytes())
    assert {"ALLREDUCE", "NEGOTIATE_ALLREDUCE"} <= {event.get("name") for event in timeline}
