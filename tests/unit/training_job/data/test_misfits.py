"""Which record the options do not fit: its number, its shard, what it was packed from, the names that it has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from shared.job_arguments import TrainingOptions
from shared.manifest import ManifestShard
from training_job.data.misfits import RecordFacts, find_misfit

CRC = "0badc0de"


def shard(index: int, num_records: int = 20) -> ManifestShard:
    """One of two shards to train on."""
    name = f"train-{index:05d}-of-00002.tfrecord"
    return ManifestShard(
        split="train", index=index, num_shards=2, name=name, size_bytes=1, crc32c=CRC, num_records=num_records
    )


def labelled(*labels: int | None) -> list[RecordFacts]:
    """Records with these labels and an image."""
    return [RecordFacts(label=label, has_image=True, names=("image", "label")) for label in labels]


def misfit(records: Sequence[Sequence[RecordFacts]], folder: Path, **options: Any) -> str | None:
    """Search the shards that have these records."""
    by_name = {shard(index).name: of_shard for index, of_shard in enumerate(records)}

    def read_facts(name: str) -> Iterator[RecordFacts]:
        return iter(by_name[name])

    shards = [shard(index) for index in range(len(records))]
    return find_misfit(shards, read_facts, TrainingOptions(**options), folder)


def test_the_first_record_with_the_highest_label_is_named(tmp_path: Path) -> None:
    """The option comes first, the record's number and shard last."""
    found = misfit([labelled(0, 1, 2), labelled(0, 3, 1, 3)], tmp_path, num_classes=2)
    assert "num_classes: 2, but labels go up to 3 (record 1 of train-00001-of-00002.tfrecord)" == found


def test_both_ends_of_the_labels_are_named(tmp_path: Path) -> None:
    """Either option may be the one to change."""
    assert (
        "label_offset: 1, but labels go down to 0 (record 2 of train-00000-of-00002.tfrecord); "
        "num_classes: 2 with label_offset: 1, but labels go up to 3 (record 0 of train-00000-of-00002.tfrecord)"
    ) == misfit([labelled(3, 1, 0)], tmp_path, num_classes=2, label_offset=1)


def test_nothing_is_said_where_all_records_fit(tmp_path: Path) -> None:
    """Reading failed for another reason then."""
    assert [None, None] == [misfit(records, tmp_path, num_classes=2) for records in ([labelled(0, 1)], [])]


def test_a_record_without_its_image_lists_what_it_has(tmp_path: Path) -> None:
    """Bounded, in order, and on one line, because the names come with the data."""
    names = ("label", "image_raw", "x\n2026 forged\x1b[2J", "y" * 300, *(f"z{n:02d}" for n in range(40)))
    found = misfit([[RecordFacts(label=1, has_image=False, names=names)]], tmp_path, num_classes=2)
    assert found is not None
    beginning = 'image_feature: record 0 of train-00000-of-00002.tfrecord has no "image"; it has image_raw, label, '
    assert (beginning, True, True) == (found[: len(beginning)], found.endswith(" and 24 more"), found.isprintable())
    assert len(found) < 600


def test_a_label_of_another_kind_is_no_label(tmp_path: Path) -> None:
    """The name is there, so a list of names would not help."""
    found = misfit([labelled(0, None)], tmp_path, num_classes=2)
    assert 'label_feature: record 1 of train-00000-of-00002.tfrecord has no single int64 number in "label"' == found


@pytest.mark.parametrize("crc", [CRC, "00000000"])
def test_what_a_record_was_packed_from_is_named_if_the_content_is_the_packed_one(tmp_path: Path, crc: str) -> None:
    """A dataset.json of other content tells nothing."""
    name = "train-00000-of-00002.tfrecord"
    packed: Mapping[str, Any] = {"name": name, "crc32c": crc, "sources": ["cat/0.png", "dog/1.png"]}
    (tmp_path / "dataset.json").write_text(json.dumps({"splits": {"train": {"shards": [packed]}}}))
    source = ", packed from dog/1.png" if crc == CRC else ""
    found = misfit([labelled(0, 7)], tmp_path, num_classes=2)
    assert f"num_classes: 2, but labels go up to 7 (record 1 of {name}{source})" == found


def test_the_search_ends_in_time(tmp_path: Path) -> None:
    """All ranks wait for it; what was seen until then counts."""
    ticks = count(step=60)
    endless = (record for n in count() for record in labelled(n))
    found = find_misfit(
        [shard(0)], lambda _: endless, TrainingOptions(num_classes=2), tmp_path, budget_s=120.0, clock=ticks.__next__
    )
    assert "num_classes: 2, but labels go up to 2 (record 2 of train-00000-of-00002.tfrecord)" == found
