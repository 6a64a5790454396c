"""The section data.layout: which files are shards, of which split, by their paths alone."""

from __future__ import annotations

from typing import Any

import pytest

from function_app.config.layouts import Layout, folders_above
from function_app.config.pipelines import Pipeline
from function_app.domain.errors import PipelineError
from shared.shard_names import ShardNameError
from tests.support.world import PIPELINE, read_pipeline

SPLITS = ("train", "validation")
SPARK = "part-00000-8f1c0de4-8f8a-4a2e-9a0f-1f3a0c1b2d3e.c000.snappy.parquet"
MARKER = Layout(kind="marker")


def marked(**members: Any) -> Layout:
    """A layout with a marker and these members."""
    return Layout(kind="marker", **members)


def with_layout(text: str) -> Pipeline:
    """The pipeline of the tests with this layout."""
    return read_pipeline(PIPELINE.replace("  small_shard_ratio: 0.0\n", f"  layout: {text}\n"))


@pytest.mark.parametrize(
    ("path", "split"),
    [
        (f"split=train/{SPARK}", "train"),
        (f"train/{SPARK}", "train"),
        (f"validation/day=3/hour=4/{SPARK}", "validation"),
        (f"day=3/split=validation/{SPARK}", "validation"),
        ("train/_c=1/part.0.parquet", "train"),
        ("train/part-r-00000", "train"),
    ],
)
def test_the_folder_names_the_split(path: str, split: str) -> None:
    """Flat or in partitions, at any depth; the shard is named by its whole path."""
    shard = MARKER.shard(path, SPLITS)
    assert (path, split, 0) == (shard.name, shard.split, shard.num_shards)


def test_the_position_follows_from_the_path_alone() -> None:
    """A number that a table holds, and another one for another path."""
    first, again, other = (MARKER.shard(f"train/{name}", SPLITS).index for name in ("a", "a", "b"))
    assert (first, True, True) == (again, first != other, 0 <= first < 2**60)


@pytest.mark.parametrize(
    "path",
    [
        "_started_123",
        "train/_committed_123",
        "_SUCCESS",
        "_metadata",
        "train/_common_metadata",
        f"train/.{SPARK}.crc",
        "train/data.crc",
        f"_temporary/0/train/{SPARK}",
        "_delta_log/00000000000000000000.json",
        "../train/x.parquet",
        "dataset.json",
        "train//x.parquet",
        "train/\n.parquet",
        "train/" + "x" * 250,
        "train/" + "ö" * 100,
    ],
)
def test_what_a_writer_leaves_behind_is_no_shard(path: str) -> None:
    """The same holds for paths that would not fit into a manifest of 100,000 files."""
    with pytest.raises(ShardNameError, match=r"not a shard|cannot be a shard's path"):
        MARKER.shard(path, SPLITS)


@pytest.mark.parametrize("path", [f"test/{SPARK}", f"split=other/{SPARK}"])
@pytest.mark.parametrize("layout", [MARKER, marked(shares={"train": 0.5, "validation": 0.5})])
def test_files_of_a_split_that_is_not_asked_for_are_in_no_other(path: str, layout: Layout) -> None:
    """Test data must not be trained on because the pipeline has only one split, or draws."""
    for splits in (("train",), SPLITS):
        with pytest.raises(ShardNameError, match="has splits"):
            layout.shard(path, splits)


def test_files_without_a_folder_have_the_only_split_or_the_first_pattern_that_matches() -> None:
    """If several splits match, the file is no shard, and the message says what to do."""
    patterns = marked(patterns={"validation": "part-0000[0-1]*", "train": "part-*"})
    assert ["train", "validation", "train"] == [
        MARKER.shard(SPARK, ("train",)).split,
        patterns.shard(SPARK, SPLITS).split,
        patterns.shard("part-00007.parquet", SPLITS).split,
    ]
    for layout in (MARKER, patterns):
        with pytest.raises(ShardNameError, match="has no split"):
            layout.shard("other.parquet", SPLITS)


def test_drawn_splits_have_the_stated_shares_and_stay_the_same() -> None:
    """A folder of a split goes before the draw."""
    layout = marked(shares={"train": 0.8, "validation": 0.2})
    names = [f"part-{number:05d}.parquet" for number in range(2000)]
    drawn = {name: layout.shard(name, SPLITS).split for name in names}
    share = sum(split == "train" for split in drawn.values()) / len(drawn)
    assert (True, drawn) == (0.77 < share < 0.83, {name: layout.shard(name, SPLITS).split for name in names})
    assert "validation" == layout.shard("validation/x.parquet", SPLITS).split


def test_files_of_one_value_are_drawn_into_one_split() -> None:
    """All of a patient's images are trained on, or none."""
    layout = marked(shares={"train": 0.5, "validation": 0.5}, draw_by="patient")
    splits = [
        {layout.shard(f"patient={patient}/{name}.parquet", SPLITS).split for name in "abcdef"}
        for patient in range(50)
    ]
    assert ({1}, 2) == ({len(each) for each in splits}, len(set.union(*splits)))
    with pytest.raises(ShardNameError, match="no folder patient="):
        layout.shard("a.parquet", SPLITS)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{kind: names, marker: DONE}", "marker needs kind: marker"),
        ("{kind: marker, quiet_s: 60}", "quiet_s needs kind: quiet"),
        ("{kind: names, patterns: {train: x}}", "because names state the split"),
        ("{kind: quiet, quiet_s: 1}", "greater than or equal to 60"),
        ("{kind: marker, shares: {train: 0.5, validation: 0.4}}", "add up to 1"),
        ("{kind: marker, shares: {train: 0.5, test: 0.5}}", "test is not in splits"),
        ("{kind: marker, patterns: {test: x}}", "test is not in splits"),
        ("{kind: marker, draw_by: patient}", "draw_by needs shares"),
        ("{kind: marker, marker: ../x}", "must be a file name"),
        ("whenever", "names"),
    ],
)
def test_a_layout_that_cannot_work_is_refused(text: str, problem: str) -> None:
    """The pipeline is out of service, with the problem."""
    with pytest.raises(PipelineError, match=problem):
        with_layout(text)


def test_a_layout_may_be_its_kind_alone() -> None:
    """The short form means the defaults."""
    assert (MARKER, Layout()) == (with_layout("marker").data.layout, with_layout("names").data.layout)


def test_markers_lie_in_the_version_or_in_folders_that_may_hold_shards() -> None:
    """Spark writes one for each output: for the version, or for each split."""
    layout = marked(marker="DONE")
    paths = ("DONE", "train/DONE", "a=1/b=2/DONE", "_temporary/DONE", ".x/DONE", "_SUCCESS", "DONE/x")
    assert [True, True, True, False, False, False, False] == [layout.is_marker(path) for path in paths]
    assert ["", "a=1", "a=1/b=2"] == list(folders_above("a=1/b=2/x"))
