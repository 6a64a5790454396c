"""Being asked to stop."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from training_job.survival.stop_request import StopRequest


@pytest.fixture(params=[signal.SIGTERM, signal.SIGUSR1])
def number(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """Either signal; what it did before is put back."""
    before = signal.getsignal(request.param)
    yield request.param
    signal.signal(request.param, before)


def test_a_signal_is_remembered_and_ends_nothing(number: signal.Signals) -> None:
    """The loop looks after the step."""
    stop = StopRequest()
    stop.listen()
    assert not stop.made
    os.kill(os.getpid(), number)
    assert stop.made
