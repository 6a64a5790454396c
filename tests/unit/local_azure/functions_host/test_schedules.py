from __future__ import annotations

from datetime import UTC, datetime

import pytest

from local_azure.functions_host.settings import BindingError
from local_azure.functions_host.timer_trigger import parse_schedule

FRIDAY = datetime(2026, 11, 20, 10, 2, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 */5 * * * *", datetime(2026, 11, 20, 10, 5, tzinfo=UTC)),
        ("*/10 * * * * *", datetime(2026, 11, 20, 10, 2, 40, tzinfo=UTC)),
        ("30 2 10 * * *", datetime(2026, 11, 21, 10, 2, 30, tzinfo=UTC)),
        ("0 30 9 * * 1-5", datetime(2026, 11, 23, 9, 30, tzinfo=UTC)),
        ("0 0 0 13 * 5", datetime(2027, 8, 13, tzinfo=UTC)),
        ("*/5 * * * *", datetime(2026, 11, 20, 10, 5, tzinfo=UTC)),
    ],
)
def test_the_next_occurrence_is_later_and_on_the_schedule(text: str, expected: datetime) -> None:
    """With seconds first; day and weekday must both hold; five fields have no seconds."""
    assert expected == parse_schedule(text, "f").next_after(FRIDAY)


@pytest.mark.parametrize("text", ["", "* * * *", "0 61 * * * *", "00:05:00", "0 0 0 0 0 0 0"])
def test_a_schedule_that_is_none_is_refused(text: str) -> None:
    """The function and the text are named."""
    with pytest.raises(BindingError, match="function f should have an NCRONTAB schedule of six fields"):
        parse_schedule(text, "f")
