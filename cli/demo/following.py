"""Follow a demo from its upload to the last notification, by the HTTP API and the twin's own records."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from cli.demo.narration import Observation, RunView, sentences
from cli.errors import CliError
from cli.remote.api_client import NOT_FOUND, ApiClient, ApiError
from cli.remote.status import reason_text
from function_app.domain.run_states import SETTLED
from local_azure.twin.addresses import PEOPLE_WEBHOOK
from local_azure.twin.client import TwinClient
from shared.progress import Progress, parse_progress
from shared.safe_text import counted

TOPIC, WEBHOOK = "Event Grid topic landfall", f"webhook {PEOPLE_WEBHOOK}"
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
    """Source of observations, and of the last answer about the run."""

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
    """Raises if a part of the twin has ended."""
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
            were = "was" if len(seen.rejected) == 1 else "were"
            raise DemoError(f"{counted(len(seen.rejected), 'shard')} {were} rejected, so there will be no run.")
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


@dataclass(kw_only=True)
class Observer:
    """Observes one dataset version and its run; remembers how far it has read the job's log."""

    api: ApiClient
    twin: TwinClient
    dataset: str
    version_name: str
    expected_shards: int
    log_offset: int = 0
    progress: list[Progress] = field(default_factory=list)
    version: Mapping[str, Any] = field(default_factory=dict)
    """The HTTP API's last answer about the dataset version."""
    run: Mapping[str, Any] = field(default_factory=dict)
    """The HTTP API's last answer about the run; empty before there is one."""
    notifications: list[dict[str, Any]] = field(default_factory=list)
    """What the recipients have received about the run."""

    def look(self) -> Observation:
        """Return the state of everything now."""
        before = self.run
        self._ask_the_api()
        if self.run:
            self._read_log(self.run["run_id"])
            self.notifications = received(self.twin, self.run["run_id"])
        generation = self.version.get("generation") or {}
        splits = self.version.get("splits", {}).values()
        return Observation(
            accepted=sum(split["accepted"] for split in splits),
            expected=self.expected_shards,
            rejected={r["shard"]: reason_text(r["reasons"]) for split in splits for r in split["rejected"]},
            fingerprint=generation.get("fingerprint"),
            num_records=generation.get("num_records"),
            run=run_view(self.run) if self.run else None,
            awaited=awaited_by(self.api, before, self.run),
            nodes=Counter(node["state"] for node in self.twin.nodes()),
            progress=tuple(self.progress),
            notified=tuple(f"{n['recipient']} ({n['outcome']})" for n in self.notifications),
        )

    def _ask_the_api(self) -> None:
        try:
            self.version = self.api.dataset_version(self.dataset, self.version_name)
        except ApiError as error:
            if error.status != NOT_FOUND:  # it is unknown until its first shard is validated
                raise
        runs = self.version.get("runs", [])
        if runs:
            self.run = self.api.run(runs[0]["run_id"])

    def _read_log(self, run_id: str) -> None:
        block = self.twin.log(run_id, self.log_offset)
        self.log_offset = block.next_offset
        parsed = (parse_progress(line) for line in block.text.splitlines())
        self.progress += [progress for progress in parsed if progress is not None]


def awaited_by(api: ApiClient, before: Mapping[str, Any], run: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what a run waits for if it was planned at the last look and still is; any other run progresses."""
    if not run or (before.get("state"), run["state"]) != ("planned", "planned"):
        return ()
    return tuple(api.get(f"/api/why/{run['run_id']}")["awaited"])


def run_view(run: Mapping[str, Any]) -> RunView:
    """Return the part of a run that the narration uses."""
    model = f"{run['model_name']} version {run['model_version']}" if run["model_name"] else None
    return RunView(run_id=run["run_id"], state=run["state"], reason=run["reason"], model=model)


def received(twin: TwinClient, subject: str) -> list[dict[str, Any]]:
    """Return the notifications that the twin's recipients got about a run or a version.

    They are sorted by recipient, oldest first, and include repeated deliveries.
    """
    events = [(TOPIC, entry["event"]) for entry in twin.received()]
    events += [(WEBHOOK, event) for entry in twin.webhook_received() if (event := _event(entry)) is not None]
    return [_notification(recipient, event) for recipient, event in events if event.get("subject") == subject]


def _event(entry: dict[str, Any]) -> dict[str, Any] | None:
    """Return the CloudEvent of a request that the webhook accepted; None for any other request."""
    with contextlib.suppress(ValueError):  # a body that is not JSON is not a CloudEvent
        event = json.loads(entry["body"])
        if entry["status"] < 300 and isinstance(event, dict):  # noqa: PLR2004 - it was answered with success
            return event
    return None


def _notification(recipient: str, event: dict[str, Any]) -> dict[str, Any]:
    return {
        "recipient": recipient,
        "outcome": str(event.get("type", "")).removeprefix("landfall."),
        "subject": event.get("subject"),
        "id": event.get("id"),
        "text": (event.get("data") or {}).get("text"),
    }
