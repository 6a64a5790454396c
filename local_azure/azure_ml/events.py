"""Events about runs, in Event Grid's schema, posted to a topic in the order in which they happened."""

from __future__ import annotations

import logging
import queue
import threading
import uuid
from collections.abc import Mapping
from typing import Any, Protocol

import httpx

from local_azure.azure_ml.runs import Run, RunState
from local_azure.azure_ml.service import iso, utcnow

_PREFIX = "Microsoft.MachineLearningServices"
_ATTEMPT_DELAYS_S = (0.2, 0.5, 1.0, 2.0)
_NOT_THERE_YET_S = 0.2
"""Pause between two attempts to reach a topic that has never answered."""
_TIMEOUT_S = 5.0

logger = logging.getLogger(__name__)


class EventSink(Protocol):
    """Where events about runs go."""

    def run_changed(self, run: Run) -> None:
        """Receive a run that is in a new state."""


class SilentSink:
    """Sink of an emulator without a topic."""

    def run_changed(self, run: Run) -> None:
        """Log the change."""
        logger.info("run %s is %s", run.name, run.status, extra={"action": "run_changed", "run_id": run.name})


class EventPublisher:
    """Posts events from a thread of its own, so that a slow or absent topic never delays a run."""

    def __init__(self, endpoint: str, key: str | None) -> None:
        self._endpoint = endpoint
        self._headers = {"aeg-sas-key": key} if key else {}
        self._pending: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._topic_has_answered = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="events", daemon=True)

    def start(self) -> None:
        """Start the thread that posts."""
        self._thread.start()

    def stop(self) -> None:
        """Post what is pending, once each, and stop."""
        self._stopping.set()
        self._pending.put(None)
        self._thread.join()

    def run_changed(self, run: Run) -> None:
        """Queue RunStatusChanged, and RunCompleted after it where the run succeeded."""
        self._pending.put(event(run, "RunStatusChanged", {"runStatus": str(run.status)}))
        if run.status is RunState.COMPLETED:
            self._pending.put(event(run, "RunCompleted", {}))

    def _work(self) -> None:
        with httpx.Client(timeout=_TIMEOUT_S, headers=self._headers) as client:
            while (one := self._pending.get()) is not None:
                self._post(client, one)

    def _post(self, client: httpx.Client, one: dict[str, Any]) -> None:
        self._await_topic(client)
        for delay_s in _ATTEMPT_DELAYS_S:
            try:
                client.post(self._endpoint, json=[one]).raise_for_status()
            except httpx.HTTPError as error:
                logger.warning("event %s was not taken by the topic: %s", one["subject"], error)
            else:
                return
            if self._stopping.wait(delay_s):
                break
        logger.error(
            "event %s was not published and is lost",
            one["subject"],
            extra={"action": "event_lost", "event": one["id"]},
        )

    def _await_topic(self, client: httpx.Client) -> None:
        """Wait for a topic that starts later than the emulator, whose first events are about interrupted runs."""
        while not self._topic_has_answered:
            try:
                client.get(self._endpoint)  # any answer shows that it is there
            except httpx.TransportError:
                if self._stopping.wait(_NOT_THERE_YET_S):
                    return
            else:
                self._topic_has_answered = True


def event(run: Run, kind: str, more: Mapping[str, str]) -> dict[str, Any]:
    """Return one event about a run, as Event Grid delivers it."""
    return {
        "topic": run.workspace_id,
        "subject": f"experiments/{run.experiment_id}/runs/{run.name}",
        "eventType": f"{_PREFIX}.{kind}",
        "eventTime": iso(utcnow()),
        "id": str(uuid.uuid4()),
        "data": {
            "experimentId": run.experiment_id,
            "experimentName": run.experiment_name,
            "runId": run.name,
            "runType": "azureml.commandjob",
            "runTags": run.properties.get("tags") or {},
            "runProperties": {"_azureml.ComputeTargetType": "amlctrain"},
            **more,
        },
        "dataVersion": "1.0",
        "metadataVersion": "1",
    }
