"""Checkpoints in a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from training_job.checkpoints.position import Position
from training_job.checkpoints.store import POINTER, CheckpointStore
from training_job.epoch_decisions import Standing
from training_job.errors import CheckpointError


def position(step: int) -> Position:
    return Position(
        epoch=1,
        step_of_epoch=3,
        step=step,
        sums=(2.0, 0.5),
        standing=Standing(best=0.25, best_epoch=1),
        epochs=({"epoch": 1.0, "loss": 0.5},),
        seed=7,
        fingerprint="f" * 64,
        num_lanes=2,
        global_batch_size=64,
    )


def variables(value: float) -> dict[str, NDArray[Any]]:
    return {"00000/dense/kernel": np.full((2, 3), value, np.float32), "00001/adam/iteration": np.array(9)}


def test_what_was_saved_is_read_back(tmp_path: Path) -> None:
    """Position and variables, types and shapes included."""
    store = CheckpointStore(tmp_path / "new" / "folder", keep=3)
    store.save(position(5), variables(1.5))
    assert position(5) == store.latest_position()
    found = store.latest_variables()
    assert [(k, v.dtype, v.tolist()) for k, v in variables(1.5).items()] == [
        (k, v.dtype, v.tolist()) for k, v in found.items()
    ]


def test_an_empty_folder_has_no_position(tmp_path: Path) -> None:
    """The first attempt starts at the beginning."""
    assert CheckpointStore(tmp_path, keep=3).latest_position() is None


def test_the_last_few_are_kept(tmp_path: Path) -> None:
    """Two of four, and the pointer names the newest."""
    store = CheckpointStore(tmp_path, keep=2)
    for step in (1, 2, 3, 4):
        store.save(position(step), variables(step))
    assert ["checkpoint-000000003.npz", "checkpoint-000000004.npz", POINTER] == sorted(
        path.name for path in tmp_path.iterdir()
    )
    assert 4.0 == store.latest_variables()["00000/dense/kernel"][0, 0]


def test_a_process_that_dies_while_writing_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    """A half-written file aside is no checkpoint, and neither is a complete one without the pointer."""
    store = CheckpointStore(tmp_path, keep=3)
    store.save(position(1), variables(1))
    (tmp_path / "checkpoint-000000002.npz.part").write_bytes(b"PK half")
    (tmp_path / "checkpoint-000000003.npz").write_bytes(b"PK never pointed to")
    (tmp_path / (POINTER + ".part")).write_text('{"file": "check')
    assert position(1) == store.latest_position()
    assert 1.0 == store.latest_variables()["00000/dense/kernel"][0, 0]


def test_a_checkpoint_above_an_abandoned_one_survives_the_sweep(tmp_path: Path) -> None:
    """The newest by the pointer is never dropped, whatever else lies in the folder."""
    store = CheckpointStore(tmp_path, keep=1)
    (tmp_path / "checkpoint-000000009.npz").write_bytes(b"of an attempt that got further but never pointed to it")
    store.save(position(2), variables(2))
    assert ["checkpoint-000000002.npz", POINTER] == sorted(path.name for path in tmp_path.iterdir())


def test_a_damaged_checkpoint_is_not_resumed_from(tmp_path: Path) -> None:
    """One flipped bit is noticed, and the message has both sums."""
    store = CheckpointStore(tmp_path, keep=3)
    path = store.save(position(1), variables(1))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"expected CRC32C [0-9a-f]{8}, got [0-9a-f]{8}"):
        store.latest_variables()


@pytest.mark.parametrize(
    ("pointer", "message"),
    [
        ("not json", "cannot be read"),
        ("[1]", "is not a JSON object, but list"),
        (json.dumps({"file": "x", "crc32c": "0"}), "states no valid position: KeyError"),
        (json.dumps({"position": {"epoch": 1}}), "states no valid position"),
    ],
)
def test_a_pointer_that_cannot_be_used_is_an_error(tmp_path: Path, pointer: str, message: str) -> None:
    """Starting from the beginning without a message would lose days of training."""
    (tmp_path / POINTER).write_text(pointer)
    with pytest.raises(CheckpointError, match=message):
        CheckpointStore(tmp_path, keep=3).latest_position()


def test_a_pointer_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    """Only the file's name counts, whatever path it has."""
    (tmp_path / "outside.npz").write_bytes(b"")
    store = CheckpointStore(tmp_path / "inside", keep=3)
    store.save(position(1), variables(1))
    pointer = tmp_path / "inside" / POINTER
    members = json.loads(pointer.read_text())
    pointer.write_text(json.dumps({**members, "file": "../outside.npz"}))
    with pytest.raises(CheckpointError, match=r"inside/outside.npz"):
        store.latest_variables()
