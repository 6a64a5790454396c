"""Follows a demo from its upload to the last notification, and fails where it takes too long."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cli.demo.narration import Observation, sentences
from cli.errors import CliError
from function_app.domain.run_states import SETTLED

POLL_S = 0.5
SILENCE_S = 240.0
"""Time without any change. TensorFlow's first step may take a minute on a busy machine."""
WITHIN_S = 1200.0
GOOD_END = "registered"
PHASES = {
    "planned": "submission",
    "submitting": "submission",
    "submitted": "waiting_for_nodes",
    "queued": "waiting_for_nodes",
    "running": "training",
}
"""A run's state → the phase, as demo.json names it; every later state is ``registration``."""


class DemoError(CliError):
    """The demo did not reach its end; the message says what happened."""


class Observing(Protocol):
    """What is followed: observations, and the last answer about the run."""

    run: Mapping[str, Any]

    def look(self) -> Observation:
        """Return the state of everything now."""
        ...


@dataclass(frozen=True, kw_only=True)
class Follower:
    """Follows a run; tests replace its parts."""

    observer: Observing
    say: Callable[[str], None]
    enter_phase: Callable[[str], None]
    check: Callable[[], None] = lambda: None
    """Raises where a part of the twin has ended."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def follow(self) -> None:
        """Narrate until the run is registered and the recipients are notified. Raises DemoError otherwise."""
        seen = Observation()
        started_s = changed_s = self.clock()
        while not self._is_over(seen):
            self.check()
            now = self.observer.look()
            self.enter_phase(phase_of(now))
            changes = list(sentences(seen, now))
            for sentence in changes:
                self.say(sentence)
            changed_s = self.clock() if changes else changed_s
            self._check_patience(started_s, changed_s, now)
            seen = now
            self.sleep(POLL_S)

    def _is_over(self, seen: Observation) -> bool:
        if seen.rejected:
            raise DemoError(f"{len(seen.rejected)} shards were rejected, so there will be no run.")
        if seen.run is None or seen.run.state not in SETTLED or not self.observer.run.get("notified_at"):
            return False
        if seen.run.state != GOOD_END:
            raise DemoError(
                f"Run {seen.run.run_id} ended as {seen.run.state}: {seen.run.reason or 'no reason given'}."
            )
        return True

    def _check_patience(self, started_s: float, changed_s: float, now: Observation) -> None:
        phase = f"The last phase seen: {phase_of(now).replace('_', ' ')}."
        if self.clock() - changed_s > SILENCE_S:
            raise DemoError(f"Nothing has changed for {SILENCE_S:.0f} s. {phase}")
        if self.clock() - started_s > WITHIN_S:
            raise DemoError(f"The run has not ended within {WITHIN_S:.0f} s. {phase}")


def phase_of(now: Observation) -> str:
    """Return the phase of the demo, as demo.json names it."""
    if now.run is None:
        return "validation" if now.fingerprint is None else "submission"
    return PHASES.get(now.run.state, "registration")


class Stopwatch:
    """Measures phases that follow each other: each one ends when the next begins."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started_s = self._since_s = clock()
        self._phase: str | None = None
        self.durations_s: dict[str, float] = {}

    def begin(self, phase: str) -> None:
        """Enter a phase; entering the current one again changes nothing."""
        if phase == self._phase:
            return
        self._close()
        self._phase = phase

    def finish(self) -> dict[str, float]:
        """End the last phase and return all of them, and the total, rounded to milliseconds."""
        self._close()
        self._phase = None
        total_s = round(self._clock() - self._started_s, 3)
        return {**self.durations_s, "total": total_s}

    def _close(self) -> None:
        now_s = self._clock()
        if self._phase is not None:
            spent_s = self.durations_s.get(self._phase, 0.0) + now_s - self._since_s
            self.durations_s[self._phase] = round(spent_s, 3)
        self._since_s = now_s
