"""Client for the endpoints that only a twin has: calls, cluster, logs, received notifications, faults.

It is for the demo and for tests; Azure does not have these endpoints.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self

import httpx

from local_azure.twin.addresses import PEOPLE_WEBHOOK, Places

TIMEOUT_S = 30.0


@dataclass(frozen=True)
class LogBlock:
    """New text of a job's log, and the offset of the next block."""

    text: str
    next_offset: int


class TwinClient:
    """Calls the emulators of one running twin. Methods raise httpx.HTTPError if a part does not answer."""

    def __init__(self, places: Places) -> None:
        verify = ssl.create_default_context(cafile=places.ca_file)
        self._azure_ml = httpx.Client(base_url=places.azure_ml_url, verify=verify, trust_env=False, timeout=TIMEOUT_S)
        self._event_grid = httpx.Client(base_url=places.event_grid_url, trust_env=False, timeout=TIMEOUT_S)
        self._functions = httpx.Client(
            base_url=places.functions_url,
            headers={"x-functions-key": places.secrets.master_key},
            trust_env=False,
            timeout=TIMEOUT_S,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in (self._azure_ml, self._event_grid, self._functions):
            client.close()

    def calls(self) -> list[dict[str, Any]]:
        """Return all calls that Azure ML answered, in order."""
        calls: list[dict[str, Any]] = _json(self._azure_ml.get("/twin/calls"))["calls"]
        return calls

    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes of all clusters."""
        computes = _json(self._azure_ml.get("/twin/cluster"))["computes"]
        return [{**node, "cluster": compute["name"]} for compute in computes for node in compute["nodes"]]

    def simulated_because(self) -> str | None:
        """Return why nodes are simulated, None if each node is a host on this machine."""
        because: str | None = _json(self._azure_ml.get("/twin/cluster"))["simulated_because"]
        return because

    def log(self, job: str, offset: int) -> LogBlock:
        """Return the output of a job's root from `offset` on; empty if there is no job yet."""
        answer = self._azure_ml.get(f"/twin/jobs/{job}/log", params={"offset": offset})
        if answer.status_code == httpx.codes.NOT_FOUND:
            return LogBlock("", offset)
        answer.raise_for_status()
        return LogBlock(answer.text, int(answer.headers["X-Next-Offset"]))

    def started_at(self, job: str) -> float:
        """Return when a job started to run, in Unix seconds. Raises ValueError if it has not started."""
        started = self._azure_ml.get(f"/twin/jobs/{job}/log").raise_for_status().headers["X-Started-At"]
        return datetime.fromisoformat(started).timestamp()

    def received(self, topic: str = "landfall") -> list[dict[str, Any]]:
        """Return the events that were published to a topic, oldest first."""
        return _entries(self._event_grid.get(f"/topics/{topic}/received"))

    def webhook_received(self, name: str = PEOPLE_WEBHOOK) -> list[dict[str, Any]]:
        """Return the requests to a plain webhook, oldest first."""
        return _entries(self._event_grid.get(f"/webhooks/{name}/received"))

    def pending_deliveries(self) -> int:
        """Return how many deliveries are pending, over all subscriptions."""
        return sum(one["pending"] for one in _entries(self._event_grid.get("/subscriptions")))

    def running_invocations(self) -> int:
        """Return how many functions run at this moment."""
        return sum(self.invocations("running").values())

    def invocations(self, which: Literal["running", "ended"]) -> Mapping[str, int]:
        """Return function name → number of invocations that are running, or have ended since the dev host started."""
        counted: Mapping[str, int] = _json(self._functions.get("/admin/host/status"))[which]
        return counted

    def set_faults(self, plan: Mapping[str, Any]) -> None:
        """From now on, drop, repeat or reorder a topic's deliveries."""
        self._event_grid.put("/faults", json=dict(plan)).raise_for_status()

    def end_faults(self) -> None:
        """End all faults of deliveries, and deliver the held events."""
        self._event_grid.delete("/faults").raise_for_status()

    def release_events(self) -> None:
        """Deliver the events that are held for reordering; the fault plans stay."""
        self._event_grid.post("/release").raise_for_status()

    def event_faults(self) -> dict[str, Any]:
        """Return each topic's fault plan and how many events it has affected."""
        return _json(self._event_grid.get("/faults"))

    def fail_calls(self, script: Mapping[str, Any]) -> None:
        """Script faults in Azure ML's answers: ``{"match": {"method", "path"}, "times": n, "do": {…}}``."""
        self._azure_ml.post("/twin/faults", json=dict(script)).raise_for_status()

    def fail_jobs(self, fault: str, *, job: str, times: int = 1) -> None:
        """Apply a fault in ``FAULTS`` to the next jobs whose names contain ``job``."""
        self.fail_calls({"fault": fault, "job": job, "times": times})

    def pending_call_faults(self) -> int:
        """Return how many calls will still get a fault from ``fail_calls``."""
        return int(_json(self._azure_ml.get("/twin/faults"))["calls"])

    def faults_met(self) -> list[tuple[str, str]]:
        """Return the faults in ``FAULTS`` that have occurred, each with the job's name."""
        return [(one["fault"], one["job"]) for one in _json(self._azure_ml.get("/twin/faults"))["met"]]

    def advance_clock(self, seconds: float) -> None:
        """Advance Azure ML's clock."""
        self._azure_ml.post("/twin/clock", json={"advance_s": seconds}).raise_for_status()

    def end_call_faults(self) -> int:
        """Remove the faults of ``fail_calls``, but not of ``fail_jobs``; return how many were left."""
        pending = self.pending_call_faults()
        self._azure_ml.delete("/twin/faults", params={"of": "calls"}).raise_for_status()
        return pending

    def fire(self, function: str) -> None:
        """Run the function of a timer now."""
        self._functions.post(f"/admin/functions/{function}", json={"input": ""}).raise_for_status()


def _json(answer: httpx.Response) -> dict[str, Any]:
    body: dict[str, Any] = answer.raise_for_status().json()
    return body


def _entries(answer: httpx.Response) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = answer.raise_for_status().json()
    return entries
