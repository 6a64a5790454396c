"""How fast Azure ML is asked, and for how long it is not."""

from __future__ import annotations

import pytest

from function_app.adapters.azure_ml_pace import MAX_AWAY_S, MAX_WAIT_S, Pace
from function_app.domain.errors import ServiceUnavailableError


def test_reads_of_several_threads_take_turns() -> None:
    """Each gets its own turn before it waits: while two wait, no third one takes the same second."""
    waits_s = list[float]()
    pace = Pace(now_s=lambda: 0.0, wait=waits_s.append)
    for _ in range(12):
        pace.before("GET")
    assert [1.0] * 5 + [2.0] * 2 == waits_s


def test_writes_do_not_wait() -> None:
    """A submission is one of them."""
    waits_s = list[float]()
    pace = Pace(now_s=lambda: 0.0, wait=waits_s.append)
    for _ in range(12):
        pace.before("PUT")
    assert [] == waits_s


@pytest.mark.parametrize(("status", "retry_after_s"), [(429, None), (429, MAX_WAIT_S), (202, 600.0)])
def test_a_short_time_is_left_to_the_sdk(status: int, retry_after_s: float | None) -> None:
    """The same holds for the interval at which an operation is polled."""
    waits_s = list[float]()
    pace = Pace(now_s=lambda: 0.0, wait=waits_s.append)
    pace.after("PUT", status, retry_after_s)
    pace.before("PUT")
    assert [] == waits_s


def test_no_answer_keeps_the_app_away_for_a_day() -> None:
    """The next request is sent after a quarter of an hour."""
    now_s = [0.0]
    pace = Pace(now_s=lambda: now_s[0])
    with pytest.raises(ServiceUnavailableError, match="asks to wait for 900 s"):
        pace.after("PUT", 429, 86400.0)
    with pytest.raises(ServiceUnavailableError, match="the next one is sent in 900 s"):
        pace.before("PUT")
    now_s[0] = MAX_AWAY_S
    pace.before("PUT")
