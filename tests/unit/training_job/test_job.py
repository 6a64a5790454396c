"""What a training is given, judged before TensorFlow is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shared.job_arguments import JobArguments
from shared.manifest import Manifest, fingerprint
from tests.ranks.versions import ClosedVersion, write_digits
from training_job.errors import ConfigurationError, DataChangedError, DataError
from training_job.job import Job, prepare


@pytest.fixture(scope="module")
def closed_version(tmp_path_factory: pytest.TempPathFactory) -> ClosedVersion:
    """A hundred digits: 80 in three shards to train on, 20 in two to evaluate on."""
    return write_digits(tmp_path_factory.mktemp("job") / "digits", train_shards=3, limit=100)


def prepared(closed_version: ClosedVersion, tmp_path: Path, world_size: int = 2, **options: Any) -> Job:
    where = {"data": str(closed_version.folder), "manifest": str(closed_version.manifest)}
    arguments = JobArguments(
        **{
            "report": str(tmp_path),
            "model": str(tmp_path),
            "checkpoints": str(tmp_path / "c"),
            "per_process_batch_size": 8,
            **where,
            **options,
        }
    )
    return prepare(arguments, world_size)


def test_both_splits_are_planned(closed_version: ClosedVersion, tmp_path: Path) -> None:
    """80 records at 2 x 8 are five steps; 20 to evaluate on are two, twelve places of them empty."""
    job = prepared(closed_version, tmp_path)
    assert (5, 2, 12) == (job.training.steps, job.validation.steps, job.validation.padded_records)


def test_accumulated_batches_are_part_of_the_global_batch(closed_version: ClosedVersion, tmp_path: Path) -> None:
    """Two batches of each of two ranks: 32 records a step."""
    job = prepared(closed_version, tmp_path, gradient_accumulation=2)
    assert (32, 2) == (job.training.batch.global_batch_size, job.training.steps)


def test_synthetic_records_need_no_shards(closed_version: ClosedVersion, tmp_path: Path) -> None:
    """The manifest names them, but nothing of them is read."""
    job = prepared(closed_version, tmp_path, data=str(tmp_path / "nowhere"), synthetic_records=160)
    assert (10, 20) == (job.training.steps, job.validation.num_records)


def test_random_pixels_do_not_pass_for_the_data_of_a_manifest(closed_version: ClosedVersion, tmp_path: Path) -> None:
    """Their fingerprint is another, so no gate takes the training for one on the data."""
    real = Manifest.from_json(closed_version.manifest.read_bytes()).fingerprint
    assert real != prepared(closed_version, tmp_path, synthetic_records=160).manifest.fingerprint


def test_a_synthetic_manifest_keeps_its_fingerprint(tmp_path: Path) -> None:
    """It is that of the run, which the gate compares it with; no folder of shards is needed."""
    manifest = Manifest(
        dataset="speed",
        version="synthetic",
        generation=1,
        fingerprint=fingerprint(()),
        data_format="synthetic",
        features=(),
        shards=(),
    )
    path = tmp_path / "manifest.json"
    path.write_text(manifest.to_json())
    job = prepared(ClosedVersion(folder=tmp_path, manifest=path), tmp_path, data="", synthetic_records=160)
    assert (manifest.fingerprint, 10) == (job.manifest.fingerprint, job.training.steps)


def test_a_missing_shard_is_named(closed_version: ClosedVersion, tmp_path: Path) -> None:
    """The error names the folder that was searched."""
    with pytest.raises(
        DataChangedError,
        match=r"nowhere/train-00000-of-00003\.tfrecord does not exist; the manifest lists it with \d+ bytes",
    ):
        prepared(closed_version, tmp_path, data=str(tmp_path / "nowhere"))


def test_a_shard_of_another_size_is_named(tmp_path: Path) -> None:
    """It changed after the version was closed."""
    closed_version = write_digits(tmp_path / "digits", limit=50)
    with (closed_version.folder / "train-00003-of-00008.tfrecord").open("ab") as shard:
        shard.write(b"more")
    with pytest.raises(
        DataChangedError,
        match=r"train-00003-of-00008\.tfrecord has \d+ bytes; the manifest lists it with (\d+) bytes",
    ):
        prepared(closed_version, tmp_path)


@pytest.mark.parametrize(
    ("content", "message"), [(None, "No such file"), ("{}", "not a manifest of format version 1")]
)
def test_a_manifest_that_cannot_be_read_is_named(
    closed_version: ClosedVersion, tmp_path: Path, content: str | None, message: str
) -> None:
    """Path and reason."""
    manifest = tmp_path / "m.json"
    if content is not None:
        manifest.write_text(content)
    with pytest.raises(DataError, match=f"Manifest {manifest}.*{message}"):
        prepared(closed_version, tmp_path, manifest=str(manifest))


def test_a_split_that_is_not_there_is_refused(closed_version: ClosedVersion, tmp_path: Path) -> None:
    """An evaluation over nothing is no metric."""
    with pytest.raises(ConfigurationError, match=r'^validation_split: the data have no split "test"; they have '):
        prepared(closed_version, tmp_path, validation_split="test")
