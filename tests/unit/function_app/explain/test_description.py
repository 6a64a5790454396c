"""Describing a version: what is there, what is missing, what was rejected and why."""

from __future__ import annotations

import pytest

from function_app.domain.errors import NotFoundError
from function_app.domain.records import DatasetVersion
from function_app.explain.description import describe_version
from tests.support.world import TRAIN_SHARDS, VERSION, World


def test_missing_and_rejected_shards_are_named() -> None:
    """A rejected shard is missing, too: it has to come again."""
    world = World()
    world.upload_shards(TRAIN_SHARDS[0])
    world.deliver(world.put(TRAIN_SHARDS[1], b"broken"))
    described = describe_version(VERSION, world.services)
    train, validation = described.splits
    assert (2, 1, ("train-00001-of-00002",)) == (train.num_shards, train.accepted, train.missing)
    assert [TRAIN_SHARDS[1]] == [row.name for row in train.rejected]
    assert (None, ("validation-*: no shard of this split has arrived yet",)) == (
        validation.num_shards,
        validation.missing,
    )
    assert described.generation is None


def test_a_closed_version_has_its_generation_and_runs() -> None:
    """Nothing is missing then."""
    world = World()
    run = world.upload_version()
    described = describe_version(VERSION, world.services)
    assert ([()] * 2, 1, [run.run_id]) == (
        [split.missing for split in described.splits],
        described.generation and described.generation.number,
        [one.run_id for one in described.runs],
    )


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ("letters", "dataset 'letters' has no pipeline; there are pipelines for digits"),
        ("digits", "no upload of digits/v9 has been seen yet: .* `landfall reconcile`"),
    ],
)
def test_an_unknown_subject_is_not_found(dataset: str, message: str) -> None:
    """The message says whether the dataset or the version is unknown."""
    with pytest.raises(NotFoundError, match=message):
        describe_version(DatasetVersion(dataset=dataset, version="v9"), World().services)
