"""Verdicts on hundreds of shards, sound, wrong and damaged, are those that were recorded, in every word."""

from __future__ import annotations

import json

import pytest

from tests.unit.shard_validation.parquet.corpus import RECORDED, cases, judged

PARTS = 5


@pytest.mark.parametrize("part", [pytest.param(i, marks=[pytest.mark.slow] if i else []) for i in range(PARTS)])
def test_the_verdicts_are_those_that_were_recorded(part: int) -> None:
    """Values are checked many rows at a time, and in another process: nothing of it shows in a verdict."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    different = {
        case[0]: (recorded[case[0]], seen)
        for number, case in enumerate(cases())
        if (number + number // PARTS) % PARTS == part and (seen := judged(case)) != recorded[case[0]]
    }
    assert {} == different
