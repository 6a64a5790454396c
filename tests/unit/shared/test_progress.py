"""What a rank prints about its place, and what is read of a line that a script may have written."""

from __future__ import annotations

import pytest

from shared.progress import RANK_PREFIX, RankPlace, latest_place, parse_rank_place

PLACE = RankPlace(rank=3, world_size=4, node=1, host="node-b", nodes=("10.0.0.4", "10.0.0.5"))


def test_a_line_says_what_was_stated() -> None:
    """The last line of a log counts: there the ranks have met."""
    met = RankPlace(rank=3, world_size=4, node=1, host="node-b", met=("node-a", "node-b"))
    assert met == latest_place([PLACE.to_line(), "between", met.to_line(), "after"])
    assert "rank 3 of 4 on host node-b (node 1), nodes of the job: 10.0.0.4, 10.0.0.5" == PLACE.in_words()
    assert "rank 3 of 4 on host node-b (node 1), has met the ranks of node-a, node-b" == met.in_words()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 5000,
        "null",
        '{"rank": 1}',
        '{"rank": "x", "world_size": 1, "node": 0, "host": "h"}',
        '{"rank": 1e999, "world_size": 1, "node": 0, "host": "h"}',
        '{"rank": 1, "world_size": 1, "node": 0, "host": "h", "met": 5}',
        "x" * 20_000,
    ],
)
def test_a_garbled_line_is_none(text: str) -> None:
    """A script may print anything behind the prefix."""
    assert parse_rank_place(RANK_PREFIX + text) is None


def test_names_are_bounded() -> None:
    """Their number and length do not matter."""
    place = parse_rank_place(
        f'{RANK_PREFIX}{{"rank": 0, "world_size": 1, "node": 0, "host": "{"h" * 999}", "met": {[1] * 999}}}'
    )
    assert place is not None
    assert (64, 128) == (len(place.host), len(place.met))
