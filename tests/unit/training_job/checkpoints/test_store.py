"""Checkpoints in a folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from training_job.checkpoints.position import Position
from training_job.checkpoints.store import FORMER_POINTER, CheckpointStore
from training_job.errors import CheckpointError
from training_job.schedule import Standing


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


def names(folder: Path, kind: str) -> list[str]:
    """Return kind and step of each file of a kind, in order."""
    return sorted(path.name[: len(kind) + 10] for path in folder.glob(f"{kind}-*"))


def pointers(folder: Path) -> list[Path]:
    """Return all pointers, the oldest first."""
    return sorted(folder.glob("pointer-*.json"))


def test_the_last_few_are_kept(tmp_path: Path) -> None:
    """Two of four, each with its pointer in two copies."""
    store = CheckpointStore(tmp_path, keep=2)
    for step in (1, 2, 3, 4):
        store.save(position(step), variables(step))
    assert ["checkpoint-000000003", "checkpoint-000000004"] == names(tmp_path, "checkpoint")
    assert ["pointer-000000003"] * 2 + ["pointer-000000004"] * 2 == names(tmp_path, "pointer")
    assert 6 == len(list(tmp_path.iterdir()))
    assert 4.0 == store.latest_variables()["00000/dense/kernel"][0, 0]


def test_no_file_has_a_name_that_was_used_before(tmp_path: Path) -> None:
    """This holds even if an attempt reaches the same step again: a written file is never changed."""
    store = CheckpointStore(tmp_path, keep=9)
    seen = {store.save(position(5), variables(1)) for _ in range(3)}
    assert (3, 6) == (len(seen), len(pointers(tmp_path)))


def test_a_later_epoch_counts_where_the_step_is_the_same(tmp_path: Path) -> None:
    """An attempt that stopped after an epoch's last step is followed by one that only evaluates it."""
    store = CheckpointStore(tmp_path, keep=3)
    store.save(replace(position(5), epoch=2), variables(2))
    store.save(position(5), variables(1))
    assert replace(position(5), epoch=2) == store.latest_position()


def test_a_process_that_dies_while_writing_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    """A checkpoint whose pointer was not written is none."""
    store = CheckpointStore(tmp_path, keep=3)
    store.save(position(1), variables(1))
    (tmp_path / "checkpoint-000000003-000001-0badcafe.npz").write_bytes(b"PK never pointed to")
    assert position(1) == store.latest_position()
    assert 1.0 == store.latest_variables()["00000/dense/kernel"][0, 0]


def test_a_checkpoint_above_an_abandoned_one_survives_the_sweep(tmp_path: Path) -> None:
    """The one that was just written is never deleted, whatever else is in the folder."""
    store = CheckpointStore(tmp_path, keep=1)
    (tmp_path / "checkpoint-000000009-000001-0badcafe.npz").write_bytes(b"of an attempt that got further")
    store.save(position(2), variables(2))
    assert ["checkpoint-000000002"] == names(tmp_path, "checkpoint")


@pytest.mark.parametrize("torn", ["", '{"file": "check', None])
def test_a_torn_or_missing_pointer_is_survived(tmp_path: Path, torn: str | None) -> None:
    """This applies to either copy; without both, the previous checkpoint is used, and the log says so."""
    for broken, expected in ((slice(2, 3), 2), (slice(3, 4), 2), (slice(2, 4), 1)):
        folder = tmp_path / f"{broken}"
        store = CheckpointStore(folder, keep=3)
        for step in (1, 2):
            store.save(position(step), variables(step))
        for pointer in pointers(folder)[broken]:
            pointer.unlink() if torn is None else pointer.write_text(torn)
        assert position(expected) == store.latest_position()
        assert expected == store.latest_variables()["00000/dense/kernel"][0, 0]


def test_where_every_pointer_is_torn_the_message_names_them(tmp_path: Path) -> None:
    """Starting from the beginning without a message would lose days of training."""
    store = CheckpointStore(tmp_path, keep=3)
    store.save(position(1), variables(1))
    for pointer in pointers(tmp_path):
        pointer.write_text("{")
    with pytest.raises(CheckpointError) as caught:
        store.latest_position()
    assert all(pointer.name in str(caught.value) for pointer in pointers(tmp_path))
    assert "Empty the folder to start from the beginning." in str(caught.value)


def test_a_damaged_checkpoint_is_not_resumed_from(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """One flipped bit is noticed, and the message has both sums; the one before is used where there is one."""
    store = CheckpointStore(tmp_path, keep=3)
    damage(store.save(position(2), variables(2)))
    with pytest.raises(CheckpointError, match=r"expected CRC32C [0-9a-f]{8}, got [0-9a-f]{8}"):
        store.latest_variables()
    store.save(position(1), variables(1))
    assert position(1) == store.latest_position()
    assert "is used, not pointer-000000002" in capfd.readouterr().err


def damage(path: Path) -> None:
    """Flip one bit."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_checkpoint_that_was_cut_or_deleted_is_passed_over(tmp_path: Path) -> None:
    """The pointer states its length."""
    store = CheckpointStore(tmp_path, keep=3)
    paths = [store.save(position(step), variables(step)) for step in (1, 2, 3)]
    paths[2].unlink()
    paths[1].write_bytes(paths[1].read_bytes()[:-1])
    assert position(1) == store.latest_position()


def test_the_variables_are_those_of_the_position_that_was_read(tmp_path: Path) -> None:
    """This holds even if a newer checkpoint, which could not be read then, can be read by now."""
    store = CheckpointStore(tmp_path, keep=3)
    older, newer = (store.save(position(step), variables(step)) for step in (1, 2))
    unreadable = newer.rename(tmp_path / "unreadable")
    assert position(1) == store.latest_position()
    unreadable.rename(newer)
    assert 1.0 == store.latest_variables()["00000/dense/kernel"][0, 0]
    older.write_bytes(older.read_bytes()[:99])
    with pytest.raises(CheckpointError, match=f"{older} cannot be read"):
        store.latest_variables()


@pytest.mark.parametrize(
    ("pointer", "message"),
    [
        ("not json", "Expecting value"),
        ("[1]", "is not a JSON object, but list"),
        (json.dumps({"file": "x", "crc32c": "0"}), "states no valid position: KeyError"),
        (json.dumps({"position": {"epoch": 1}}), "states no valid position"),
    ],
)
def test_a_pointer_that_cannot_be_used_is_an_error(tmp_path: Path, pointer: str, message: str) -> None:
    """It is an error only if there is no other usable pointer."""
    (tmp_path / FORMER_POINTER).write_text(pointer)
    with pytest.raises(CheckpointError, match=message):
        CheckpointStore(tmp_path, keep=3).latest_position()


def test_a_pointer_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    """Only the file's name is used, whatever its path."""
    (tmp_path / "outside.npz").write_bytes(b"")
    store = CheckpointStore(tmp_path / "inside", keep=3)
    store.save(position(1), variables(1))
    for pointer in pointers(tmp_path / "inside"):
        pointer.write_text(json.dumps({**json.loads(pointer.read_text()), "file": "../outside.npz"}))
    with pytest.raises(CheckpointError, match=r"outside.npz does not exist"):
        store.latest_variables()


def test_a_folder_of_the_former_layout_is_read(tmp_path: Path) -> None:
    """One pointer without a length; the next checkpoint is written in today's layout and counts."""
    store = CheckpointStore(tmp_path, keep=1)
    path = store.save(position(1), variables(1))
    members = json.loads(pointers(tmp_path)[0].read_text())
    former = path.rename(tmp_path / "checkpoint-000000001.npz")
    for pointer in pointers(tmp_path):
        pointer.unlink()
    kept = {name: members[name] for name in ("crc32c", "position")}
    (tmp_path / FORMER_POINTER).write_text(json.dumps({**kept, "file": former.name}))
    assert position(1) == store.latest_position()
    assert 1.0 == store.latest_variables()["00000/dense/kernel"][0, 0]
    store.save(position(2), variables(2))
    assert position(2) == store.latest_position()
    assert not former.exists()
