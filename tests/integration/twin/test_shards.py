"""What is wrong with a version is said by name and place, and keeps it from being trained on."""

from __future__ import annotations

import pytest

from local_azure.processes import wait_until
from tests.integration.twin.shards import flip_bit, whole_version
from tests.support.twin import WITHIN_S, TwinUnderTest

pytestmark = pytest.mark.twin

DAMAGED = "train-00001-of-00002.tfrecord"


def test_a_flipped_bit_is_found_named_and_mended(twin: TwinUnderTest) -> None:
    """The shard is rejected with record and offset and nothing runs; the good shard over it leads to a run."""
    shards = whole_version()
    record_bytes = len(shards[DAMAGED]) // 5
    in_third_record = 2 * record_bytes + 14
    twin.upload("steady/damaged", {**shards, DAMAGED: flip_bit(shards[DAMAGED], offset=in_third_record)})
    rejected = wait_until(
        lambda: twin.rejected("steady/damaged"), what="the shard to be rejected", timeout_s=WITHIN_S
    )
    twin.await_quiet()
    reason = rejected[0]["reasons"][0]
    assert (DAMAGED, 2, 2 * record_bytes, []) == (
        rejected[0]["shard"],
        reason["record_index"],
        reason["byte_offset"],
        twin.runs("steady/damaged"),
    )
    twin.upload("steady/damaged", {DAMAGED: shards[DAMAGED]})
    assert ("registered", []) == (twin.await_settled("steady/damaged")["state"], twin.rejected("steady/damaged"))


def test_an_incomplete_version_runs_nothing_and_says_what_is_missing(twin: TwinUnderTest) -> None:
    """The API names the shards that have not come, and a split that nobody has begun."""
    twin.upload("steady/incomplete", {DAMAGED: whole_version()[DAMAGED]})
    wait_until(lambda: twin.version("steady/incomplete"), what="the shard to be validated", timeout_s=WITHIN_S)
    twin.await_quiet()
    version = twin.version("steady/incomplete")
    missing = {split: described["missing"] for split, described in version["splits"].items()}
    expected = {
        "train": ["train-00000-of-00002"],
        "validation": ["validation-*: no shard of this split has come yet"],
    }
    assert ("open", [], expected) == (version["state"], version["runs"], missing)
