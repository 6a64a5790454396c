"""Verdicts and counters: behaviour that both ledgers share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta, timezone
from functools import partial
from typing import Any

import pytest

from function_app.domain.records import NUM_BUCKETS, DatasetVersion, RecordedShard, ShardRecord, ShardState
from function_app.ports import Ledger
from shard_validation import Reason
from shard_validation.reasons import ReasonCode
from tests.support.ledger_records import DIGITS, NOON, shard_record
from tests.support.threads import at_once

REASON = Reason(code=ReasonCode.PAYLOAD_CRC, shard="train-00000-of-00064", message="record 3 …", record_index=3)

IS_FIRST = pytest.mark.parametrize("is_first", [False, True])
"""Whether the caller believes the verdict to be the first one; it is wrong if there was another one."""


def accepted(ledger: Ledger, split: str = "train") -> list[int]:
    return [ledger.accepted_in_bucket(DIGITS, split, bucket) for bucket in range(NUM_BUCKETS)]


def counted(rows: list[ShardRecord], split: str = "train") -> list[int]:
    """Return the counters that follow from the rows."""
    mine = [row for row in rows if row.split == split and row.state is ShardState.ACCEPTED]
    return [sum(row.bucket == bucket for row in mine) for bucket in range(NUM_BUCKETS)]


def test_the_first_claim_of_a_split_size_stays(ledger: Ledger) -> None:
    """A later claim of another number of shards returns the first number."""
    assert [64, 64] == [ledger.claim_split_size(DIGITS, "train", n) for n in (64, 65)]


def test_split_sizes_are_those_of_one_version(ledger: Ledger) -> None:
    """A version with the same prefix has its own splits."""
    ledger.claim_split_size(DIGITS, "train", 64)
    ledger.claim_split_size(DIGITS, "test", 8)
    ledger.claim_split_size(DatasetVersion(dataset="digits", version="v10"), "train", 5)
    assert {"train": 64, "test": 8} == dict(ledger.split_sizes(DIGITS))


def test_an_unknown_version_has_no_splits_shards_or_counts(ledger: Ledger) -> None:
    """The results are empty, not an error."""
    found = (ledger.split_sizes(DIGITS), list(ledger.shards(DIGITS)), accepted(ledger))
    assert ({}, [], [0] * NUM_BUCKETS) == found


def test_versions_lists_each_version_once(ledger: Ledger) -> None:
    """A version with two splits is one version."""
    other = DatasetVersion(dataset="faces", version="2026-11-20")
    for version, split in ((DIGITS, "train"), (DIGITS, "test"), (other, "train")):
        ledger.claim_split_size(version, split, 4)
    assert [DIGITS, other] == sorted(ledger.versions())
    assert [[DIGITS], []] == [list(ledger.versions(name)) for name in (DIGITS.dataset, DIGITS.dataset[:-1])]


def test_a_verdict_is_returned_as_it_was_recorded(ledger: Ledger) -> None:
    """Every member is kept, including microseconds and sizes beyond 32 bits."""
    shard = shard_record(
        17,
        size_bytes=5 << 40,
        num_records=1 << 33,
        content_format="tfrecord gzip",
        state=ShardState.REJECTED,
        reasons=(REASON, replace(REASON, record_index=4)),
        statistics={"labels": {"0": 5, "1": 5}, "mean": 0.125, "note": "ß…"},
    )
    assert RecordedShard(replaced=None) == ledger.record_shard(shard)
    assert shard == ledger.shard(DIGITS, "train", 17)


def test_times_come_back_in_utc(ledger: Ledger) -> None:
    """A time in another zone is returned as the same instant in UTC."""
    ledger.record_shard(shard_record(validated_at=NOON.astimezone(timezone(timedelta(hours=2)))))
    stored = ledger.shard(DIGITS, "train", 0)
    assert stored is not None
    assert NOON.isoformat() == stored.validated_at.isoformat()


def test_a_naive_time_is_refused(ledger: Ledger) -> None:
    """Another machine would interpret a time without a zone differently."""
    with pytest.raises(ValueError, match="aware"):
        ledger.record_shard(shard_record(validated_at=NOON.replace(tzinfo=None)))


def test_an_accepted_shard_is_counted_in_its_bucket(ledger: Ledger) -> None:
    """Index 17 belongs to bucket 1 of 16 only."""
    ledger.record_shard(shard_record(17))
    assert [0, 1, *[0] * 14] == accepted(ledger)


def test_the_counters_of_two_splits_are_apart(ledger: Ledger) -> None:
    """A test shard does not help to complete the training split."""
    ledger.record_shard(shard_record(0))
    ledger.record_shard(shard_record(0, split="test"))
    ledger.record_shard(shard_record(16, split="test"))
    assert (1, 2) == (accepted(ledger)[0], accepted(ledger, "test")[0])


@IS_FIRST
@pytest.mark.parametrize(
    ("verdicts", "count"),
    [
        ("a1 a1", 1),
        ("a1 a2", 1),
        ("a1 r2", 0),
        ("r1 a2", 1),
        ("r1 r2", 0),
        ("a1 r1", 0),
        ("a1 r2 r2 a3 a3", 1),
    ],
)
def test_the_counter_follows_the_verdict(ledger: Ledger, verdicts: str, count: int, *, is_first: bool) -> None:
    """a1 means "content 1 accepted", r2 "content 2 rejected": only the last verdict counts, and only once.

    Also where each caller takes its verdict for the first.
    """
    states = {"a": ShardState.ACCEPTED, "r": ShardState.REJECTED}
    for verdict in verdicts.split():
        shard = shard_record(state=states[verdict[0]], etag=verdict[1:])
        left = ledger.record_shard(shard, is_first=is_first).accepted
        assert left in (None, accepted(ledger)[0])
    assert count == accepted(ledger)[0]


def test_recording_returns_the_row_that_was_replaced(ledger: Ledger) -> None:
    """The caller learns whether the position had a verdict before, and which one."""
    first, second = shard_record(etag="E1"), shard_record(etag="E2")
    assert [None, first] == [ledger.record_shard(one).replaced for one in (first, second)]


def test_the_same_verdict_on_the_same_bytes_changes_nothing(ledger: Ledger) -> None:
    """A second delivery does not even change the time of the verdict."""
    first = shard_record()
    ledger.record_shard(first)
    recorded = ledger.record_shard(shard_record(validated_at=NOON + timedelta(hours=1)))
    assert (RecordedShard(replaced=first), first) == (recorded, ledger.shard(DIGITS, "train", 0))


def of_bucket(*numbers: int, **members: Any) -> list[ShardRecord]:
    """Return shards of one bucket, by their positions in it."""
    return [shard_record(number * NUM_BUCKETS, num_shards=640, **members) for number in numbers]


def test_first_verdicts_are_recorded_together(ledger: Ledger) -> None:
    """The result is the bucket's new counter; other splits and buckets have their own."""
    ledger.record_shard(shard_record(1))
    answers = [
        ledger.record_first_verdicts(shards)
        for shards in (of_bucket(0, 1, 2), of_bucket(3), of_bucket(0, 1, split="test"))
    ]
    assert ([3, 4, 2], 4, 2) == (answers, accepted(ledger)[0], accepted(ledger, "test")[0])
    assert [*of_bucket(0, 1, 2, 3), shard_record(1)] == sorted(
        (row for row in ledger.shards(DIGITS) if row.split == "train"), key=lambda row: row.bucket
    )


@pytest.mark.parametrize("state", ShardState)
def test_where_one_position_has_a_verdict_no_first_verdict_is_recorded(ledger: Ledger, state: ShardState) -> None:
    """Neither the existing verdict nor the counter changes: the caller handles each shard separately."""
    stands = of_bucket(1, etag="E1", state=state)[0]
    ledger.record_shard(stands)
    count = accepted(ledger)[0]
    assert ledger.record_first_verdicts(of_bucket(0, 1, 2)) is None
    assert ([stands], count) == (list(ledger.shards(DIGITS)), accepted(ledger)[0])


def test_groups_of_first_verdicts_are_all_counted(ledger: Ledger) -> None:
    """Concurrent threads lose no count, and exactly one of them learns that it was the last."""
    groups = [of_bucket(number, number + 10, number + 20) for number in range(10)]
    answers = at_once([partial(ledger.record_first_verdicts, group) for group in groups])
    assert (list(range(3, 31, 3)), 30) == (sorted(answer or 0 for answer in answers), accepted(ledger)[0])


def test_of_two_groups_with_one_shard_in_common_one_is_recorded(ledger: Ledger) -> None:
    """A shard whose event was delivered twice counts once."""
    calls = [partial(ledger.record_first_verdicts, of_bucket(0, number)) for number in range(1, 9)]
    answers = at_once(calls)
    assert ([2], 2, 2) == (
        [answer for answer in answers if answer is not None],
        accepted(ledger)[0],
        len(list(ledger.shards(DIGITS))),
    )


def test_a_version_lists_its_verdicts_and_no_others(ledger: Ledger) -> None:
    """The list has all buckets and splits of one version, whatever other versions exist."""
    mine = [shard_record(index) for index in range(18)] + [shard_record(0, split="test")]
    other = DatasetVersion(dataset="digits", version="v1-b")
    for shard in [*mine, shard_record(0, dataset_version=other)]:
        ledger.record_shard(shard)
    assert sorted(s.name for s in mine) == sorted(s.name for s in ledger.shards(DIGITS))


def test_marks_say_of_each_verdict_where_it_is_and_what(ledger: Ledger) -> None:
    """The marks have all buckets and splits of one version, and no others."""
    mine = [shard_record(index, state=list(ShardState)[index % 2]) for index in range(18)]
    mine.append(shard_record(0, split="test", name="any name, größe", num_shards=0))
    other = DatasetVersion(dataset="digits", version="v1-b")
    for shard in [*mine, shard_record(0, dataset_version=other)]:
        ledger.record_shard(shard)
    wanted = {(s.split, s.index, s.num_shards, s.name, s.state) for s in mine}
    found = ledger.shard_marks(DIGITS)
    assert (19, wanted) == (len(found), {(s.split, s.index, s.num_shards, s.name, s.state) for s in found})


@pytest.mark.parametrize(
    "name", ["a/b", "a#b?c", "a\\b", "a|b", "50%", "it's", "größe ✓", "tab\there", "~41", "x" * 900, "é" * 300]
)
def test_any_name_can_be_a_dataset_and_a_version(ledger: Ledger, name: str) -> None:
    """Characters that a table key does not allow are stored, too, and returned unchanged."""
    version = DatasetVersion(dataset=name, version=name)
    shard = shard_record(3, dataset_version=version, name=f"{name}/train-00003-of-00064")
    ledger.claim_split_size(version, "train", 64)
    ledger.record_shard(shard)
    found = (list(ledger.versions()), ledger.shard(version, "train", 3), list(ledger.shards(version)))
    assert ([version], shard, [shard]) == found


def test_names_that_differ_only_in_case_are_two_versions(ledger: Ledger) -> None:
    """Blob paths are case-sensitive, and so is the ledger."""
    versions = [DatasetVersion(dataset="digits", version=version) for version in ("v1", "V1")]
    for version in versions:
        ledger.record_shard(shard_record(dataset_version=version))
    assert [1, 1] == [len(list(ledger.shards(version))) for version in versions]


def test_too_many_reasons_are_cut_and_counted(ledger: Ledger) -> None:
    """The first reasons are kept; the statistics say how many more there were."""
    reasons = tuple(replace(REASON, record_index=index, message="é" * 200) for index in range(1000))
    ledger.record_shard(shard_record(state=ShardState.REJECTED, reasons=reasons))
    stored = ledger.shard(DIGITS, "train", 0)
    assert stored is not None
    kept = len(stored.reasons)
    assert (reasons[:kept], {"reasons_omitted": 1000 - kept}) == (stored.reasons, stored.statistics)


def test_statistics_beyond_the_limit_do_not_stop_a_verdict(ledger: Ledger) -> None:
    """A million labels must not cost a verdict; what was left out is named."""
    ledger.record_shard(shard_record(statistics={"labels": {str(label): 1 for label in range(50_000)}}))
    stored = ledger.shard(DIGITS, "train", 0)
    assert stored is not None
    assert {"omitted": "more than 131072 characters of JSON: labels"} == stored.statistics


def test_the_largest_record_fits(ledger: Ledger) -> None:
    """Reasons and statistics just below their limits, in characters that need the most space, fit into one row."""
    reasons = tuple(replace(REASON, record_index=index, message="\U0001f600" * 30) for index in range(100))
    shard = shard_record(reasons=reasons, statistics={"note": "x" * 131_000}, state=ShardState.REJECTED)
    ledger.record_shard(shard)
    assert shard == ledger.shard(DIGITS, "train", 0)


@IS_FIRST
def test_twenty_deliveries_of_one_shard_count_once(ledger: Ledger, *, is_first: bool) -> None:
    """Twenty threads with the same verdict create one row and one count; exactly one of them replaced nothing."""
    recorded = at_once([partial(ledger.record_shard, shard_record(), is_first=is_first)] * 20)
    assert (1, 1) == ([one.replaced for one in recorded].count(None), accepted(ledger)[0])


@IS_FIRST
def test_twenty_shards_of_one_bucket_are_all_counted(ledger: Ledger, *, is_first: bool) -> None:
    """Concurrent threads lose no count, and exactly one of them learns that it was the last."""
    shards = [shard_record(index * NUM_BUCKETS, num_shards=320) for index in range(20)]
    recorded = at_once([partial(ledger.record_shard, shard, is_first=is_first) for shard in shards])
    assert (20, 20) == (accepted(ledger)[0], len(list(ledger.shards(DIGITS))))
    assert list(range(1, 21)) == sorted(one.accepted or 0 for one in recorded)


@IS_FIRST
def test_counters_equal_rows_after_contradicting_verdicts(ledger: Ledger, *, is_first: bool) -> None:
    """Threads that accept and reject the same shards in one bucket leave counters that match the rows."""
    states = (ShardState.ACCEPTED, ShardState.REJECTED)
    calls: list[Callable[[], RecordedShard]] = [
        partial(
            ledger.record_shard,
            shard_record(number % 3 * NUM_BUCKETS, etag=f"E{number}", state=states[number % 2]),
            is_first=is_first,
        )
        for number in range(18)
    ]
    at_once(calls)
    assert counted(list(ledger.shards(DIGITS))) == accepted(ledger)


def test_twenty_claims_of_a_split_size_agree(ledger: Ledger) -> None:
    """All claims return the same number."""
    returned = at_once([partial(ledger.claim_split_size, DIGITS, "train", size) for size in range(1, 21)])
    assert {ledger.split_sizes(DIGITS)["train"]} == set(returned)
