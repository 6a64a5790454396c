"""A deployment as a smoke test sees it: the answers of its API, recorded on the twin, its container, and its time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import httpx
from azure.core.exceptions import AzureError, HttpResponseError, ResourceNotFoundError

from cli.remote.api_client import ApiClient
from cli.smoke.assertions import Results
from cli.smoke.course import DATASET, FAILS_WITH, Course

VERSION = "20261123-100000"
MACHINES = {
    "cluster": "landfall-smoke", "vm_size": "Standard_D4s_v3", "num_nodes": 2, "world_size": 2, "device": "cpu",
}  # fmt: skip
URI = "azureml://subscriptions/s/resourcegroups/g/workspaces/w/datastores/landfall_runs/paths/x"
RUN: Mapping[str, Any] = {
    "version": VERSION, "state": "submitted", "submitted_at": "t", "notified_at": None, "reason": None,
    "model_name": None, "model_version": None, "failure_class": None, "remedy": None, "next_run_id": None,
    "log_tail": None, "notifications": [], "outputs": {"model": URI}, "waiting": None,
}  # fmt: skip
TOPIC = [{"recipient": "topic", "state": "sent", "last_error": None}]
REPORT = {"world_size": 2, "num_nodes": 2, "hosts": ["node-0", "node-1"], "nodes_are_simulated": False}
SUCCESS = {
    "state": "registered", "model_name": DATASET, "model_version": "1", "notified_at": "t", "notifications": TOPIC,
}  # fmt: skip
FAILURE = {
    "state": "failed", "failure_class": "missing_file", "remedy": "stop", "notified_at": "t", "notifications": TOPIC,
    "reason": f"exit code 12: {FAILS_WITH}", "log_tail": f"loading\n{FAILS_WITH}\n",
}  # fmt: skip
CANCELED = {"state": "canceled", "notified_at": "t", "reason": "canceled by a person over the API"}
PIPELINE = {"dataset": DATASET, "pipeline": "smoke", "state": "in_service", "machines": MACHINES, "problems": []}


class Deployment:
    """Everything works, except what a test changes before the smoke test begins."""

    def __init__(self) -> None:
        self.health: tuple[int, dict[str, Any]] = (200, {"status": "ok"})
        self.pipelines: list[dict[str, Any]] = [PIPELINE]
        self.ends: dict[str, dict[str, Any]] = {"training": SUCCESS, "failing": FAILURE, "canceled": CANCELED}
        self.report: dict[str, Any] = REPORT
        self.noticed_by = "reconciliation"
        self.announces = True
        self.stray_events: list[str] = []
        """What the history has of further events about the file that is no shard."""
        self.rejected: list[dict[str, Any]] = []
        self.letters: list[list[dict[str, Any]]] = [[]]
        """Dead letters at the first look, and at the following ones."""
        self.runs: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.seconds = 0.0
        self.down_until_s = 0.0
        self.fails_at = self.interrupts_at = ""
        """A request that fails for good, and one during which a person presses Ctrl-C for the first time."""
        self.data = Container()
        self.said: list[str] = []

    # -- what the test needs --------------------------------------------------------------------------------
    def api(self) -> ApiClient:
        return ApiClient("https://app.example", "secret", transport=httpx.MockTransport(self._answer))

    def course(self) -> Course:
        return Course(
            api=self.api(),
            data=self.data,  # type: ignore[arg-type]
            version=VERSION,
            results=Results(self.said.append),
            clock=lambda: self.seconds,
            sleep=self._sleep,
        )

    def _sleep(self, seconds: float) -> None:
        self.seconds += seconds

    # -- the API --------------------------------------------------------------------------------------------
    def _answer(self, request: httpx.Request) -> httpx.Response:
        path = unquote(request.url.path)
        self.requests.append(f"{request.method} {path}")
        if self.requests[-1] == self.fails_at:
            return httpx.Response(400, json={"code": "broken", "detail": "the app is broken"})
        if self.requests[-1] == self.interrupts_at and self.requests.count(self.interrupts_at) == 1:
            raise KeyboardInterrupt
        if self.seconds < self.down_until_s and path != "/api/health":
            return httpx.Response(503, text="starting")
        status, body = self._found(request.method, path, request.content)
        return httpx.Response(status, json=body)

    def _found(self, method: str, path: str, content: bytes) -> tuple[int, Any]:
        *_, last = path.split("/")
        letters = self.letters.pop(0) if path == "/api/dead-letters" and len(self.letters) > 1 else self.letters[0]
        answers: dict[str, Any] = {
            "/api/health": lambda: self.health,
            "/api/pipelines": lambda: (200, {"pipelines": self.pipelines}),
            "/api/runs": lambda: (200, {"runs": list(self.runs.values())}),
            "/api/dead-letters": lambda: (200, {"dead_letters": letters}),
            "/api/reconcile": lambda: (202, {"state": "queued"}),
            f"/api/datasets/{DATASET}/{VERSION}": self._version,
            f"/api/runs/{last}": lambda: (200, self._run(last)),
        }
        if last == "cancel":
            return 200, self._cancel(path.split("/")[3])
        if path == "/api/runs" and method == "POST":
            return 202, self._new("canceled" if "epochs" in json.loads(content)["overrides"] else "failing")
        if path.startswith("/api/why/"):
            return 200, {"lines": list(self._history(path.removeprefix("/api/why/")))}
        status, body = answers[path]()
        return status, body

    def _cancel(self, run_id: str) -> dict[str, Any]:
        self.runs[run_id] |= CANCELED
        return self.runs[run_id]

    def _new(self, which: str) -> dict[str, Any]:
        return self.runs.setdefault(f"run-{which}", {**RUN, "run_id": f"run-{which}"})

    def _run(self, run_id: str) -> dict[str, Any]:
        """Return a run; each look finds it a step further. The one that is canceled goes on until it is."""
        run, which = self.runs[run_id], run_id.removeprefix("run-")
        if which == "canceled":
            run["state"] = "running" if run["state"] == "submitted" else run["state"]
        else:
            run |= self.ends.get(which, {})
        return run

    def _version(self) -> tuple[int, Any]:
        uploaded = [name for name in self.data.blobs if name.endswith(".tfrecord")]
        if len(uploaded) < 2:
            return 404, {"code": "not_found", "detail": "unknown"}
        number = 0 if self.rejected else 1
        split = {"accepted": number, "num_rejected": len(self.rejected), "rejected": self.rejected}
        splits = {"train": split, "validation": {"accepted": 1, "num_rejected": 0, "rejected": []}}
        closed = not self.rejected
        runs = [self._new("training")] if closed else []
        return 200, {"splits": splits, "generation": {"number": 1} if closed else None, "refusal": [], "runs": runs}

    def _history(self, subject: str) -> Iterator[dict[str, Any]]:
        if subject.endswith("notes.part"):
            seen = ["it is no shard"] if self.announces else []
            for reason in [*seen, *self.stray_events]:
                yield {"action": "event_suppressed", "reason": reason, "details": {"event_id": "e"}}
        elif subject in self.runs and self.runs[subject]["state"] in ("registered", "failed", "canceled"):
            ended = {"registered": "completed"}.get(self.runs[subject]["state"], self.runs[subject]["state"])
            yield {"action": f"run_{ended}", "reason": "", "details": {"by": self.noticed_by}}
            if ended == "completed":
                yield {"action": "run_registered", "reason": "", "details": {"by": "x", **self.report}}


class Container:
    """The container of the data, in memory."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.refusals: list[AzureError] = []
        """Errors of the next writes."""
        self.refuses_deletions: AzureError | None = None
        self.refuses_lists: AzureError | None = None

    def upload_blob(self, name: str, content: bytes, *, overwrite: bool) -> None:
        assert overwrite
        if self.refusals:
            raise self.refusals.pop(0)
        self.blobs[name] = content

    def delete_blob(self, name: str) -> None:
        if self.refuses_deletions:
            raise self.refuses_deletions
        if self.blobs.pop(name, None) is None:
            raise ResourceNotFoundError(name)

    def list_blob_names(self, name_starts_with: str) -> list[str]:
        if self.refuses_lists:
            raise self.refuses_lists
        return [name for name in self.blobs if name.startswith(name_starts_with)]


def forbidden() -> HttpResponseError:
    """Storage's refusal of an identity without the role."""
    error = HttpResponseError("This request is not authorized to perform this operation using this permission.")
    error.status_code = 403
    return error
