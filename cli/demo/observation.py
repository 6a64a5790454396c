"""Observes a running demo: by the HTTP API, as any user would, and by the twin's own records."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cli.api_client import NOT_FOUND, ApiClient, ApiError
from cli.demo.narration import Observation, RunView
from cli.status import reason_text
from local_azure.twin.client import TwinClient
from local_azure.twin.places import PEOPLE_WEBHOOK
from shared.progress import Progress, parse_progress

TOPIC, WEBHOOK = "Event Grid topic landfall", f"webhook {PEOPLE_WEBHOOK}"


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
    """Return what a run waits for that was planned at the last look and still is; every other run moves on."""
    if not run or (before.get("state"), run["state"]) != ("planned", "planned"):
        return ()
    return tuple(api.get(f"/api/why/{run['run_id']}")["awaited"])


def run_view(run: Mapping[str, Any]) -> RunView:
    """Return what is narrated of a run."""
    model = f"{run['model_name']} version {run['model_version']}" if run["model_name"] else None
    return RunView(run_id=run["run_id"], state=run["state"], reason=run["reason"], model=model)


def received(twin: TwinClient, subject: str) -> list[dict[str, Any]]:
    """Return the notifications that the twin's recipients got about a run or a version.

    By recipient, oldest first, repetitions included.
    """
    events = [(TOPIC, entry["event"]) for entry in twin.received()]
    events += [(WEBHOOK, event) for entry in twin.webhook_received() if (event := _event(entry)) is not None]
    return [_notification(recipient, event) for recipient, event in events if event.get("subject") == subject]


def _event(entry: dict[str, Any]) -> dict[str, Any] | None:
    """Return the CloudEvent of a request that the webhook accepted; None for any other request."""
    with contextlib.suppress(ValueError):  # a body that is no JSON is no CloudEvent
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
