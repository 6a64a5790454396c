"""Runs of jobs: their records, states and transitions, and the events that publish the transitions."""

from __future__ import annotations

import dataclasses
import datetime as dt
import logging
import queue
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import httpx

from local_azure.azure_ml.service import iso, utcnow
from local_azure.azure_ml.workspace import Document, Store

KIND = "run"

_ATTEMPT_DELAYS_S = (0.2, 0.5, 1.0, 2.0)
_NOT_THERE_YET_S = 0.2
"""Pause between attempts to reach a topic that has not answered yet."""
_TIMEOUT_S = 5.0

logger = logging.getLogger(__name__)


class RunState(StrEnum):
    """State of a run, in the service's spelling."""

    NOT_STARTED = "NotStarted"
    STARTING = "Starting"
    PREPARING = "Preparing"  # builds the environment's image
    QUEUED = "Queued"  # waits for nodes
    RUNNING = "Running"
    FINALIZING = "Finalizing"
    CANCEL_REQUESTED = "CancelRequested"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELED = "Canceled"


TERMINAL = frozenset({RunState.COMPLETED, RunState.FAILED, RunState.CANCELED})

_NEXT = {
    RunState.NOT_STARTED: RunState.STARTING,
    RunState.STARTING: RunState.PREPARING,
    RunState.PREPARING: RunState.QUEUED,
    RunState.QUEUED: RunState.RUNNING,
    RunState.RUNNING: RunState.FINALIZING,
    RunState.FINALIZING: RunState.COMPLETED,
}


def may_follow(current: RunState, wanted: RunState) -> bool:
    """Whether a run in `current` may move to `wanted`.

    A run can fail at any time before its end, and be canceled at any time before Finalizing. After a cancel request
    a run ends Canceled, or Failed if the emulator itself was stopped in the meantime.
    """
    if current in TERMINAL:
        return False
    if wanted is RunState.FAILED:
        return True
    if current is RunState.CANCEL_REQUESTED:
        return wanted is RunState.CANCELED
    if wanted is RunState.CANCEL_REQUESTED:
        return current is not RunState.FINALIZING
    return _NEXT.get(current) is wanted


@dataclass(frozen=True, kw_only=True)
class Run:
    """A job and its one run."""

    name: str
    workspace_id: str  # ARM id, as the client wrote it
    properties: Document  # the job as submitted; description, tags and the like may be updated
    status: RunState
    created_at: str
    started_at: str | None = None  # time when it entered Running
    ended_at: str | None = None
    error: Document | None = None
    warnings: list[str] = field(default_factory=list)
    log_files: list[str] = field(default_factory=list)  # names of uploaded logs, such as user_logs/std_log.txt
    shown_as: str | None = None  # the state that clients see instead of the real one
    silent: bool = False  # whether no event reports its failure or cancellation

    @property
    def job_id(self) -> str:
        """ARM id of the job."""
        return f"{self.workspace_id}/jobs/{self.name}"

    @property
    def experiment_name(self) -> str:
        """Experiment of the run."""
        return str(self.properties.get("experimentName") or "Default")

    @property
    def experiment_id(self) -> str:
        """Stable id of the experiment."""
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.workspace_id.lower()}/{self.experiment_name}"))

    @property
    def ended(self) -> bool:
        """Whether the run has reached a state that it cannot leave."""
        return self.status in TERMINAL


class IllegalTransitionError(Exception):
    """A run's state does not allow a transition, because the run has ended or was canceled in the meantime."""

    def __init__(self, run: Run, wanted: RunState) -> None:
        super().__init__(f"run {run.name} is {run.status} and cannot become {wanted}")
        self.run = run
        self.wanted = wanted


class RunBook:
    """Durable runs. Changes are made one at a time; `publish` receives each change of state, in order."""

    def __init__(self, store: Store, publish: Callable[[Run], None], now: Callable[[], dt.datetime] = utcnow) -> None:
        self._store = store
        self._publish = publish
        self._now = now
        self._lock = threading.RLock()

    def get(self, job_id: str) -> Run | None:
        """Return a run by the ARM id of its job; None if there is none."""
        document = self._store.get(KIND, job_id)
        return None if document is None else _run(document)

    def current(self, job_id: str) -> Run:
        """Return a run that must exist. Raises KeyError otherwise."""
        run = self.get(job_id)
        if run is None:
            raise KeyError(job_id)
        return run

    def below(self, workspace_id: str) -> list[Run]:
        """Return the runs of a workspace, or all for "/", oldest first."""
        return [_run(document) for document in self._store.below(KIND, workspace_id.rstrip("/") + "/")]

    def add(self, run: Run) -> None:
        """Record a new run."""
        with self._lock:
            self._write(run)
            self._publish(run)

    def move(self, job_id: str, wanted: RunState, *, error: Document | None = None) -> Run:
        """Move a run to `wanted`. Raises IllegalTransitionError if its state does not allow that."""
        with self._lock:
            run = self.current(job_id)
            if not may_follow(run.status, wanted):
                raise IllegalTransitionError(run, wanted)
            moved = dataclasses.replace(run, status=wanted, error=error, shown_as=None, **self._times(wanted))
            self._write(moved)
            if not (moved.silent and wanted in (RunState.FAILED, RunState.CANCELED)):
                self._publish(moved)
            return moved

    def update(self, job_id: str, **changes: Any) -> Run:
        """Change members of a run other than its state."""
        with self._lock:
            changed = dataclasses.replace(self.current(job_id), **changes)
            self._write(changed)
            return changed

    def _times(self, wanted: RunState) -> dict[str, Any]:
        now = iso(self._now())
        return {"started_at": now} if wanted is RunState.RUNNING else {"ended_at": now} if wanted in TERMINAL else {}

    def _write(self, run: Run) -> None:
        self._store.put(KIND, run.job_id, dataclasses.asdict(run))


def _run(document: Document) -> Run:
    return Run(**{**document, "status": RunState(document["status"])})


class EventPublisher:
    """Posts events from its own thread, so that a slow or missing topic never delays a run."""

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
        """Post pending events, once each, and stop."""
        self._stopping.set()
        self._pending.put(None)
        self._thread.join()

    def run_changed(self, run: Run) -> None:
        """Queue RunStatusChanged, followed by RunCompleted if the run succeeded."""
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
                logger.warning("event %s was refused by the topic: %s", one["subject"], error)
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
        """Wait for a topic that starts after the emulator, whose first events are about interrupted runs."""
        while not self._topic_has_answered:
            try:
                client.get(self._endpoint)  # Any answer shows that it exists.
            except httpx.TransportError:
                if self._stopping.wait(_NOT_THERE_YET_S):
                    return
            else:
                self._topic_has_answered = True


def log_change(run: Run) -> None:
    """Log a run's new state, if there is no topic."""
    logger.info("run %s is %s", run.name, run.status, extra={"action": "run_changed", "run_id": run.name})


def event(run: Run, kind: str, more: Mapping[str, str]) -> dict[str, Any]:
    """Return one event about a run, in Event Grid's format."""
    return {
        "topic": run.workspace_id,
        "subject": f"experiments/{run.experiment_id}/runs/{run.name}",
        "eventType": f"Microsoft.MachineLearningServices.{kind}",
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
