"""Interruptions of a training: a signal that asks it to stop, and Azure's notice that its node will be removed.

mpirun forwards SIGUSR1 to all ranks and waits. SIGTERM to mpirun is different: it kills the ranks within half a
second, a constant of Open MPI 5's runtime that no option changes.

A low-priority node is removed without a signal to its processes. At most 30 s before, the node's own metadata service
lists the event (Azure documentation, "Scheduled Events for Linux VMs"). Azure may withdraw it (seen by
microsoft/ai4s-jobq on Azure ML's nodes), so a notice saves a checkpoint and the training continues.
"""

from __future__ import annotations

import json
import math
import signal
import threading
import time
import urllib.request
from collections.abc import Iterable, Mapping
from http.client import HTTPException
from types import FrameType
from typing import Any

URL_VARIABLE = "LANDFALL_SCHEDULED_EVENTS_URL"
"""Set by the cluster's image; without it no service is polled."""
EVENT_TYPES = frozenset({"Preempt", "Terminate", "Redeploy", "Reboot"})
"""The events after which the node's processes no longer exist; ``Freeze`` is a pause of seconds."""

_INTERVAL_S = 2.0
_TIMEOUT_S = 5.0
_MAX_ANSWER_BYTES = 1 << 20
_FRESH_S = 10.0
"""Nodes learn of one event a little apart; a checkpoint that was saved for another node's notice is recent enough."""


class StopRequest:
    """Remembers SIGTERM or SIGUSR1; the training loop looks at it after every step."""

    def __init__(self) -> None:
        self.requested = False

    def listen(self) -> None:
        """Handle both signals from now on."""
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.requested = True


class NodeNotices:
    """Polls one metadata service, in a thread, and remembers whether a checkpoint is wanted."""

    def __init__(self, url: str = "", *, interval_s: float = _INTERVAL_S) -> None:
        self._url = url
        self._interval_s = interval_s
        self._known: frozenset[str] = frozenset()
        self._announced_at = self._saved_at = -math.inf
        self._stopped = threading.Event()

    def start(self) -> None:
        """Start polling. Does nothing without a URL."""
        if self._url:
            threading.Thread(target=self._watch, name="node notices", daemon=True).start()

    def stop(self) -> None:
        """Stop polling."""
        self._stopped.set()

    def checkpoint_wanted(self) -> bool:
        """Whether an event was announced later than ``_FRESH_S`` after the last checkpoint within an epoch."""
        return self._announced_at > self._saved_at + _FRESH_S

    def checkpoint_saved(self) -> None:
        """Record that a checkpoint was saved, for any reason."""
        self._saved_at = time.monotonic()

    def _watch(self) -> None:
        failed_before = False
        while not self._stopped.wait(self._interval_s):
            try:
                self._note(_events(self._url))
            except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
                if not failed_before:
                    print(f"no notices of this node's end: {self._url} does not answer ({error})", flush=True)
                failed_before = True  # polled again: Azure may need two minutes for its first answer

    def _note(self, events: Iterable[Mapping[str, Any]]) -> None:
        ending = {str(event["EventId"]): event for event in events if event["EventType"] in EVENT_TYPES}
        for name in sorted(ending.keys() - self._known):
            event = ending[name]
            print(f"Azure announces {event['EventType']}, not before {event.get('NotBefore') or 'now'}", flush=True)
            self._announced_at = time.monotonic()
        self._known = frozenset(ending)


def _events(url: str) -> list[Mapping[str, Any]]:
    # Without a proxy: the service answers on the node alone.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, headers={"Metadata": "true"})  # noqa: S310 (the image sets the address)
    with opener.open(request, timeout=_TIMEOUT_S) as answer:
        events: list[Mapping[str, Any]] = json.loads(answer.read(_MAX_ANSWER_BYTES))["Events"]
    return events
