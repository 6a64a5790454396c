"""Two ranks that must not report success; with_tensorflow/test_attempt.py tests single processes."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from local_azure.azure_ml.mounts import MountRules, compiler
from shared.exit_codes import ExitCode
from shared.manifest import Manifest
from shared.record_framing import FRAME_OVERHEAD_BYTES, HEADER_BYTES
from tests.ranks.ranks import Outcome, end_all, program, start, train
from tests.ranks.versions import ClosedVersion, job_arguments, write_digits

pytestmark = [pytest.mark.distributed, pytest.mark.slow]


OVER_TCP = ("--mca", "btl", "self,tcp")
"""As between nodes: when a rank ends, MPI on another one may notice first and must not hide the cause."""


def assert_failed(outcome: Outcome, code: ExitCode, words: str) -> None:
    """Check for one paragraph, the exit code, no stack trace, and no report that a gate could accept."""
    assert code == outcome.exit_code, outcome.log
    assert 1 == outcome.log.count(words), outcome.log
    assert "Traceback" not in outcome.log
    assert "training succeeded" not in outcome.log
    assert not (outcome.output / "report" / "training_report.json").exists()


def test_an_export_that_evaluates_otherwise_when_loaded_back_is_no_success(
    digits: ClosedVersion, tmp_path: Path
) -> None:
    """A layer loses its argument when saved: the files exist and load, but contain another model."""
    outcome = train(
        2, job_arguments(digits, tmp_path, epochs=2, model_module=program("forgets_its_scale")), launcher=OVER_TCP
    )
    assert_failed(outcome, ExitCode.EXPORT, "model.keras, loaded back, sums loss to another value: expected ")


def test_ranks_whose_weights_part_are_named(digits: ClosedVersion, tmp_path: Path) -> None:
    """The error appears at the end of the epoch in which they diverged, before anything of it is saved."""
    outcome = train(2, job_arguments(digits, tmp_path, epochs=2), instead=[program("parted")], launcher=OVER_TCP)
    assert_failed(
        outcome,
        ExitCode.RANKS_PARTED,
        "After step 22 the weights of ranks [1] differ from those of the root.",
    )
    assert not list(tmp_path.glob("checkpoints/*"))


@pytest.mark.skipif(compiler() is None, reason="the mount needs a C compiler")
def test_outputs_that_cannot_be_written_end_the_training_with_the_files_name(
    digits: ClosedVersion, tmp_path: Path
) -> None:
    """After a few retries the training ends with one paragraph and a special exit code."""
    outcome = train(2, job_arguments(digits, tmp_path, epochs=1), rules=MountRules(always_fails=True))
    assert ExitCode.OUTPUT == outcome.exit_code, outcome.log
    assert "training failed (rank 0): " in outcome.log
    assert "cannot be written: Input/output error, 5 times in 3 s. Look at the storage account" in outcome.log
    assert "Traceback" not in outcome.log
    assert [] == list((tmp_path / "checkpoints").glob("*.json"))


def test_a_record_that_is_damaged_while_the_training_runs_is_named(tmp_path: Path) -> None:
    """The error names the shard and the record number, in an epoch after it was read without an error."""
    version = write_digits(tmp_path / "versions")
    running = start(2, job_arguments(version, tmp_path / "out", epochs=5000))
    try:
        running.wait_for_epoch(1)
        shard = version.folder / "train-00002-of-00008.tfrecord"
        place = damage_record(shard, 7)
        outcome = running.ended()
    finally:
        end_all(running)
    assert_failed(outcome, ExitCode.DATA_CHANGED, f"Record 7 (at byte {place}) has a damaged payload of ")
    assert f"Shard {shard} has CRC32C " in outcome.log


@pytest.mark.parametrize("index", range(2))
def test_a_shard_of_the_same_size_that_was_not_accepted_ends_all_ranks(tmp_path: Path, index: int) -> None:
    """All labels are shifted, so only the checksum reveals it, on whichever rank reads the shard."""
    version = write_digits(tmp_path / "versions", train_shards=2, limit=200)
    other = write_digits(tmp_path / "others", train_shards=2, limit=200, label_shift=1)
    name = f"train-{index:05d}-of-00002.tfrecord"
    shard, content = version.folder / name, (other.folder / name).read_bytes()
    assert len(content) == shard.stat().st_size
    shard.write_bytes(content)
    outcome = train(2, job_arguments(version, tmp_path / "out", epochs=2), launcher=OVER_TCP)
    assert_failed(outcome, ExitCode.DATA_CHANGED, f"Shard {shard} has CRC32C ")
    assert not list(tmp_path.glob("out/checkpoints/*"))


def test_a_label_that_the_options_do_not_allow_is_named_with_its_record(tmp_path: Path) -> None:
    """The first rank that reads it names the pipeline's field, which states no bounds for the label."""
    version = write_digits(tmp_path / "versions", train_shards=2, limit=200)
    stated = Manifest.from_json(version.manifest.read_bytes())
    unbounded = tuple(replace(feature, maximum=None) for feature in stated.features)
    version.manifest.write_text(replace(stated, features=unbounded).to_json())
    outcome = train(2, job_arguments(version, tmp_path / "out", epochs=2, num_classes=2), launcher=OVER_TCP)
    assert_failed(outcome, ExitCode.CONFIGURATION, "num_classes: 2, but labels go up to 9 (record ")
    assert re.search(r"\(record \d+ of (train|validation)-0000\d-of-00002\.tfrecord\)\.", outcome.log)
    assert "IteratorGetNext" not in outcome.log


def test_an_evaluation_that_saw_other_than_the_manifests_records_is_none(tmp_path: Path) -> None:
    """The last validation shard has one record fewer than the manifest says: no metric is reported."""
    version = write_digits(tmp_path / "versions", limit=200)
    stated = Manifest.from_json(version.manifest.read_bytes())
    longer = [
        replace(s, num_records=s.num_records + (s.split == "validation" and s.index == 1)) for s in stated.shards
    ]
    version.manifest.write_text(replace(stated, shards=tuple(longer)).to_json())
    outcome = train(2, job_arguments(version, tmp_path / "out", epochs=1), launcher=OVER_TCP)
    assert_failed(outcome, ExitCode.DATA, "'validation' has 41 records in the manifest, but 40 were read.")


def damage_record(shard: Path, number: int) -> int:
    """Flip a bit in a record's payload, in place; return the offset at which the record starts."""
    content, start_of = shard.read_bytes(), 0
    for _ in range(number):
        (length,) = struct.unpack_from("<Q", content, start_of)
        start_of += length + FRAME_OVERHEAD_BYTES
    at = start_of + HEADER_BYTES + 20
    with shard.open("r+b") as file:
        file.seek(at)
        file.write(bytes([content[at] ^ 1]))
    return start_of
