"""Attempts of a single process that must not succeed: each ends with its specific error and without a report."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from shared.exit_codes import ExitCode
from shared.manifest import FeatureSpec, Manifest
from shared.record_framing import FRAME_OVERHEAD_BYTES, HEADER_BYTES, frame_record
from shared.training_report import FILE_NAME, TrainingReport
from tests.ranks.versions import ClosedVersion, job_arguments, write_version
from tests.support.example_bytes import example_bytes
from training_job import collective, training_loop
from training_job.attempt import run
from training_job.checkpoints.position import Position
from training_job.checkpoints.store import CheckpointStore
from training_job.collective import World
from training_job.errors import (
    CheckpointError,
    ConfigurationError,
    DataChangedError,
    DataError,
    ExportError,
    NonFiniteLossError,
    RanksPartedError,
)
from training_job.job import prepare
from training_job.liveness.interruptions import StopRequest
from training_job.session import BEST_FOLDER

PROGRAMS = Path(__file__).resolve().parents[1] / "programs"
FEATURES = (FeatureSpec(name="image", kind="float", shape=(2, 2, 1)), FeatureSpec(name="label", kind="int64"))
GOOD = example_bytes({"image": [0.5] * 4, "label": 1})
LABELLED_3 = example_bytes({"image": [0.5] * 4, "label": 3})
NAN = example_bytes({"image": [float("nan")] * 4, "label": 1})
SEED_WITHOUT_SHUFFLE = 2
"""With this seed the first epoch leaves two shards in their order."""


def version(folder: Path, train: list[list[bytes]]) -> ClosedVersion:
    """Write training shards, and two validation shards of four and three records."""
    return write_version(folder / "version", {"train": train, "validation": [[GOOD] * 4, [GOOD] * 3]}, FEATURES)


def attempt(data: ClosedVersion, output: Path, **options: Any) -> None:
    """Train one epoch in this process, reading records in the order in which they were written."""
    in_order = {"shuffle_buffer_records": 1, "seed": SEED_WITHOUT_SHUFFLE}
    settings = {"epochs": 1, "per_process_batch_size": 4, **in_order, "model_module": str(PROGRAMS / "linear.py")}
    try:
        run(prepare(job_arguments(data, output, **{**settings, **options}), 1), StopRequest())
    finally:
        assert not (output / "report" / "training_report.json").exists()


def test_an_export_that_evaluates_otherwise_when_loaded_back_is_no_success(tmp_path: Path) -> None:
    """A layer loses its argument when saved: the files exist and load, but contain another model."""
    data = version(tmp_path, [[GOOD] * 8])
    with pytest.raises(ExportError, match=r"model\.keras, loaded back, sums loss to another value: expected "):
        attempt(data, tmp_path, model_module=str(PROGRAMS / "forgets_its_scale.py"))


def test_a_record_that_makes_the_loss_nan_is_no_success(tmp_path: Path) -> None:
    """The error names the step."""
    data = version(tmp_path, [[GOOD] * 8, [GOOD, NAN, GOOD, GOOD]])
    with pytest.raises(NonFiniteLossError, match=r"The loss of step 3 \(epoch 1\) on rank 0 is NaN or infinite"):
        attempt(data, tmp_path)


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    """The error names the shard, the record number and the record's offset."""
    data = version(tmp_path, [[GOOD] * 8])
    shard = data.folder / "train-00000-of-00001.tfrecord"
    place = damage_record(shard, 5)
    with pytest.raises(DataChangedError, match=rf"Record 5 \(at byte {place}\) has a damaged payload of ") as caught:
        attempt(data, tmp_path)
    assert f"Shard {shard} has CRC32C " in str(caught.value)


@pytest.mark.parametrize("name", ["train-00001-of-00002.tfrecord", "validation-00001-of-00002.tfrecord"])
@pytest.mark.parametrize("is_cached", [False, True])
def test_shards_replaced_by_others_of_the_same_size_are_not_trained_on(
    tmp_path: Path, name: str, *, is_cached: bool
) -> None:
    """Every label is shifted but every record is valid: only the checksum of the file reveals it."""
    data = version(tmp_path, [[GOOD] * 8] * 2)
    shard = data.folder / name
    other = frame_record(example_bytes({"image": [0.5] * 4, "label": 0}))
    content = shard.read_bytes()
    shard.write_bytes(other * (len(content) // len(other)))
    assert len(content) == shard.stat().st_size
    with pytest.raises(DataChangedError, match=f"Shard {shard} has CRC32C ") as caught:
        attempt(data, tmp_path, cache_folder=str(tmp_path / "cache") if is_cached else "")
    assert ExitCode.DATA_CHANGED == caught.value.exit_code
    assert not list(tmp_path.glob("checkpoints/*"))


def test_a_label_that_only_replaced_data_have_is_no_mistake_in_the_options(tmp_path: Path) -> None:
    """This holds whether the label is read before or after the end of the content check."""
    data = version(tmp_path, [[GOOD] * 8])
    shard = data.folder / "train-00000-of-00001.tfrecord"
    shard.write_bytes(frame_record(example_bytes({"image": [0.5] * 4, "label": 99})) * 8)
    with pytest.raises(DataChangedError, match=f"Shard {shard} has CRC32C "):
        attempt(data, tmp_path)


def test_a_label_that_the_options_do_not_allow_is_named_with_its_record(tmp_path: Path) -> None:
    """The option to change is named first; the manifest has no statistics that would show the label earlier."""
    data = version(tmp_path, [[GOOD] * 8, [*[GOOD] * 5, LABELLED_3, GOOD, GOOD]])
    dataset_file(data, {"train-00001-of-00002.tfrecord": [f"cat/{n}.png" for n in range(8)]})
    with pytest.raises(ConfigurationError) as caught:
        attempt(data, tmp_path, num_classes=2)
    place = "record 5 of train-00001-of-00002.tfrecord, packed from cat/5.png"
    assert f"num_classes: 2, but labels go up to 3 ({place})." == str(caught.value)


def test_a_record_without_a_feature_is_named_with_what_it_has(tmp_path: Path) -> None:
    """The data are not damaged: the pipeline names a feature that not every record has."""
    other = example_bytes({"image_raw": [0.5] * 4, "label": 1})
    data = version(tmp_path, [[GOOD] * 8, [GOOD, GOOD, other, GOOD]])
    with pytest.raises(ConfigurationError) as caught:
        attempt(data, tmp_path)
    place = "record 2 of train-00001-of-00002.tfrecord"
    assert f'image_feature: {place} has no "image"; it has image_raw, label.' == str(caught.value)


def test_a_value_that_does_not_fit_is_said_without_the_names_of_the_graph(tmp_path: Path) -> None:
    """The record has three numbers where the manifest says four; TensorFlow's reason is kept."""
    short = example_bytes({"image": [0.5] * 3, "label": 1})
    with pytest.raises(DataError) as caught:
        attempt(version(tmp_path, [[GOOD] * 8, [GOOD, GOOD, short, GOOD]]), tmp_path)
    words = str(caught.value)
    assert words.startswith("Rank 0 cannot read its data: Key: image. ")
    assert not re.search(r"\{\{|\[\[|function_node|Op:|__wrapped__|\n", words)


def dataset_file(data: ClosedVersion, sources: dict[str, list[str]]) -> None:
    """Write the origin of the shards beside them."""
    shards = [
        {"name": s.name, "crc32c": s.crc32c, "sources": sources.get(s.name, [])}
        for s in Manifest.from_json(data.manifest.read_bytes()).shards
    ]
    (data.folder / "dataset.json").write_text(json.dumps({"splits": {"train": {"shards": shards}}}))


def test_a_loss_that_replaced_data_make_nan_is_blamed_on_the_data(tmp_path: Path) -> None:
    """The step with the NaN is reached before the end of the first epoch."""
    data = version(tmp_path, [[GOOD] * 8])
    shard = data.folder / "train-00000-of-00001.tfrecord"
    shard.write_bytes(frame_record(NAN) * 8)
    with pytest.raises(DataChangedError, match=f"Shard {shard} has CRC32C "):
        attempt(data, tmp_path)


def test_an_evaluation_of_fewer_records_than_the_manifests_is_no_success(tmp_path: Path) -> None:
    """The last validation shard has one record fewer: no metric is reported."""
    data = version(tmp_path, [[GOOD] * 8])
    stated = Manifest.from_json(data.manifest.read_bytes())
    longer = [
        replace(s, num_records=s.num_records + (s.split == "validation" and s.index == 1)) for s in stated.shards
    ]
    data.manifest.write_text(replace(stated, shards=tuple(longer)).to_json())
    with pytest.raises(DataError, match=r"'validation' has 8 records in the manifest, but 7 were read\."):
        attempt(data, tmp_path)


def test_ranks_whose_weights_differ_from_the_roots_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of four ranks differ, as the last rank sees it."""
    monkeypatch.setattr(collective, "sum_over_ranks", lambda digests, _: digests[3] + np.array([0.0, 1.0, 1.0, 0.0]))
    session: Any = SimpleNamespace(
        world=World(rank=3, size=4, local_rank=3, num_nodes=1),
        model=SimpleNamespace(weights=[np.ones(3)]),
        position=SimpleNamespace(step=22),
    )
    with pytest.raises(
        RanksPartedError, match=r"^After step 22 the weights of ranks \[1, 2\] differ from those of the root\."
    ):
        training_loop.check_equal_weights(session)


def test_the_weights_of_the_best_epoch_survive_a_death_between_its_two_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attempt writes them again and exports them; no later epoch is better by so much."""
    data = version(tmp_path, [[GOOD] * 8])
    options = {"per_process_batch_size": 4, "export": "best", "minimum_delta": 1e9}
    arguments = job_arguments(data, tmp_path, epochs=2, model_module=str(PROGRAMS / "linear.py"), **options)
    save = CheckpointStore.save

    def die(store: CheckpointStore, *content: Any) -> Path:
        if store.folder.name == BEST_FOLDER:
            raise InterruptedError
        return save(store, *content)

    monkeypatch.setattr(CheckpointStore, "save", die)
    with pytest.raises(InterruptedError):
        run(prepare(arguments, 1), StopRequest())
    monkeypatch.setattr(CheckpointStore, "save", save)
    keras.utils.clear_session(free_memory=False)  # variables have the names that they have in another process
    run(prepare(arguments, 1), StopRequest())
    report = TrainingReport.from_json((tmp_path / "report" / FILE_NAME).read_bytes())
    assert (1, 2) == (report.details["exported_epoch"], len(report.epochs))


def test_the_weights_of_another_epoch_are_not_exported_as_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names both epochs."""
    data = version(tmp_path, [[GOOD] * 8])
    monkeypatch.setattr(training_loop, "save_best", lambda _: None)
    CheckpointStore(tmp_path / "checkpoints" / BEST_FOLDER, keep=1).save(Position(epoch=3), {})
    with pytest.raises(
        CheckpointError, match="has the weights of epoch 3 instead of the weights of the best epoch, 1"
    ):
        attempt(data, tmp_path, epochs=2, export="best", minimum_delta=1e9)


def damage_record(shard: Path, number: int) -> int:
    """Flip a bit in a record's payload; return the offset at which the record starts."""
    content, start_of = bytearray(shard.read_bytes()), 0
    for _ in range(number):
        (length,) = struct.unpack_from("<Q", content, start_of)
        start_of += length + FRAME_OVERHEAD_BYTES
    content[start_of + HEADER_BYTES + 20] ^= 1
    shard.write_bytes(content)
    return start_of
