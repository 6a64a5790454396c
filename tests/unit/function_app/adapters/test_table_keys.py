"""Keys of table rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from function_app.adapters.tables.rows import MAX_NAME_CHARS, after, ascending, descending, escaped, joined

NAMES = st.text(max_size=300)
TIMES = st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(4000, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 (hypothesis adds the zone)


@given(NAMES)
def test_an_escaped_name_has_only_characters_that_a_key_takes(name: str) -> None:
    """It has no separator, and its length is limited."""
    allowed = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~")
    assert set(escaped(name)) <= allowed
    assert len(escaped(name)) <= MAX_NAME_CHARS


@given(NAMES, NAMES)
def test_different_names_have_different_keys(first: str, second: str) -> None:
    """Long ones too."""
    assert (first == second) == (escaped(first) == escaped(second))


@given(st.text(min_size=1, max_size=3), st.text(max_size=3), st.text(max_size=3))
def test_keys_below_a_prefix_lie_in_its_range(prefix: str, rest: str, other: str) -> None:
    """The keys of another prefix are outside of it."""
    low, high = escaped(prefix) + "|", after(escaped(prefix))
    assert low <= joined(escaped(prefix), escaped(rest)) < high
    assert (prefix == other) == (low <= joined(escaped(other), escaped(rest)) < high)


@given(TIMES, TIMES)
def test_keys_of_times_sort_like_times(first: datetime, second: datetime) -> None:
    """Upwards and downwards, to the microsecond."""
    assert (first < second) == (ascending(first) < ascending(second))
    assert (first < second) == (descending(first) > descending(second))


def test_a_microsecond_makes_a_difference() -> None:
    """The precision is enough for today's times."""
    now = datetime(2026, 11, 20, 12, tzinfo=UTC)
    assert (17, 1) == (len(ascending(now)), int(ascending(now + timedelta(microseconds=1))) - int(ascending(now)))


def test_a_naive_time_makes_no_key() -> None:
    """It would sort differently on another machine."""
    with pytest.raises(ValueError, match="aware"):
        ascending(datetime(2026, 11, 20))  # noqa: DTZ001 (that is the point)
