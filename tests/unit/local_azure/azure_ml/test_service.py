"""Times and durations as the service writes them."""

from __future__ import annotations

import datetime as dt

import pytest

from local_azure.azure_ml.service import duration_s, iso


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT1H", 3600),
        ("PT2M", 120),
        ("P1DT1S", 86401),
        ("PT1H30M5S", 5405),
        ("PT0S", 0),
        ("PT90.5S", 90),
        ("P21D", 1814400),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    """Days, hours, minutes and whole seconds: the service ignores fractions."""
    assert seconds == duration_s(text)


@pytest.mark.parametrize("text", ["", "P", "PT", "1H", "PT1H ", "P1M", "-PT1H", "PT1.5H"])
def test_anything_else_is_refused(text: str) -> None:
    """Months have no length."""
    with pytest.raises(ValueError, match="expected an ISO 8601 duration"):
        duration_s(text)


def test_a_moment_has_seven_decimals() -> None:
    """Azure writes times in this form, in UTC."""
    zone = dt.timezone(dt.timedelta(hours=1))
    assert "2026-11-20T10:00:00.5000000Z" == iso(dt.datetime(2026, 11, 20, 11, 0, 0, 500_000, tzinfo=zone))
