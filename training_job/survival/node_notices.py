"""Azure's notice that a node is about to be taken away, answered by a checkpoint.

A low-priority node goes without a signal to its processes; 30 s before, if at all, the node's own metadata
service lists the event (Azure documentation, "Scheduled Events for Linux VMs"). Azure may change its mind
(seen by microsoft/ai4s-jobq on Azure ML's nodes), so the training goes on after the checkpoint.
"""

from __future__ import annotations

import json
import math
import threading
import time
import urllib.request
from collections.abc import Iterable, Mapping
from typing import Any

URL_VARIABLE = "LANDFALL_SCHEDULED_EVENTS_URL"
"""Set by the cluster's image; where it is not set nobody is asked."""
EVENT_TYPES = frozenset({"Preempt", "Terminate", "Redeploy", "Reboot"})
"""All after which the node's processes are gone; ``Freeze`` is a pause of seconds."""

_INTERVAL_S = 2.0
_TIMEOUT_S = 5.0
_MAX_ANSWER_BYTES = 1 << 20
_FRESH_S = 10.0
"""Nodes hear of one event a little apart; a checkpoint that was saved for another node's notice is good enough."""


class NodeNotices:
    """Asks one metadata service, in a thread, and remembers whether a checkpoint is wanted."""

    def __init__(self, url: str = "", *, interval_s: float = _INTERVAL_S) -> None:
        self._url = url
        self._interval_s = interval_s
        self._known: frozenset[str] = frozenset()
        self._announced_at = self._saved_at = -math.inf
        self._stopped = threading.Event()

    def start(self) -> None:
        """Ask from now on. Does nothing without an address."""
        if self._url:
            threading.Thread(target=self._watch, name="node notices", daemon=True).start()

    def stop(self) -> None:
        """Ask no more."""
        self._stopped.set()

    def checkpoint_wanted(self) -> bool:
        """Whether something was announced since the last checkpoint."""
        return self._announced_at > self._saved_at + _FRESH_S

    def checkpoint_saved(self) -> None:
        """Note that a checkpoint was saved, for whatever reason."""
        self._saved_at = time.monotonic()

    def _watch(self) -> None:
        silent = False
        while not self._stopped.wait(self._interval_s):
            try:
                self._note(_events(self._url))
            except (OSError, ValueError, KeyError, TypeError) as error:
                if not silent:
                    print(f"no notices of this node's end: {self._url} does not say ({error})", flush=True)
                silent = True  # and asked again: Azure may need two minutes for its first answer

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
    request = urllib.request.Request(url, headers={"Metadata": "true"})  # noqa: S310 (whose address the image sets)
    with opener.open(request, timeout=_TIMEOUT_S) as answer:
        events: list[Mapping[str, Any]] = json.loads(answer.read(_MAX_ANSWER_BYTES))["Events"]
    return events
