"""The course of a smoke test: an upload that is trained on, a job that fails on purpose, and one that is canceled."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

from azure.core.exceptions import AzureError, HttpResponseError
from azure.storage.blob import ContainerClient

from cli.errors import CliError
from cli.remote.api_client import NOT_FOUND, ApiClient, ApiError
from cli.remote.status import reason_text
from cli.smoke.assertions import Results
from function_app.domain.run_states import SETTLED, Actor, RunState
from shard_validation import encode_example
from shared.record_framing import frame_record

DATASET = "landfall-smoke"
MODEL = DATASET
STRAY = "notes.part"
"""A file that is not a shard: the event of its upload must arrive, and that of its deletion must not."""
FAILS = {"pretrained_weights": "landfall-smoke-fails-on-purpose.keras"}
FAILS_WITH = f"Pretrained weights {FAILS['pretrained_weights']} do not exist."
LASTS = {"epochs": 1_000_000}
NUM_NODES = NUM_RANKS = 2
NOTICED_BY = {Actor.RECONCILIATION: "an event", Actor.SWEEP: "the sweep"}
EVENT_WITHIN_S = 300.0
ROLE_WITHIN_S = 900.0
"""A new role may take that long to take effect."""
JUDGED_WITHIN_S = 900.0
RUN_WITHIN_S = 2700.0
"""Nodes that start, an image that is pulled for the first time, and the training."""
POLL_S, SWEEP_EVERY_S = 2.0, 60.0
MAX_LETTERS = 1000
NUM_TRAIN, NUM_VALIDATION = 64, 16
PIXELS = 64
_UNAVAILABLE = 500
_FORBIDDEN = 403
T = TypeVar("T")


class CannotContinueError(Exception):
    """A step failed that all further steps need; its result is on record."""


@dataclass(kw_only=True)
class Course:
    """One smoke test. ``run_ids`` and ``version`` are what it has made so far."""

    api: ApiClient
    data: ContainerClient
    version: str
    results: Results
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    run_ids: dict[str, str] = field(default_factory=dict)
    known_letters: frozenset[str] = frozenset()
    """Dead letters that were there before."""

    def run(self) -> None:
        """Take all steps, up to the first failure of a step that the others need."""
        with contextlib.suppress(CannotContinueError):  # the result that ends the test early says why
            self._app()
            self._stray_file()
            self._shards()
            self._training()
            self._failure()
            self._cancellation()
        self._after_all()

    # -- the app and the upload -----------------------------------------------------------------------------
    def _app(self) -> None:
        """Ask the app whether it is healthy, and for the pipeline."""
        try:
            status = str(self.api.get("/api/health").get("status"))
            self._need("app_healthy", f"status {status}", holds=status in ("ok", "degraded"))
        except CliError as error:
            if isinstance(error, ApiError) and error.code == "unauthorized":
                raise
            self._need("app_healthy", error.message, holds=False)
        found = next((one for one in self.api.pipelines() if one["dataset"] == DATASET), None)
        if found is None or found["state"] != "in_service":
            problems = "; ".join(found["problems"]) if found else f"no pipeline has the dataset {DATASET}"
            self._need("pipeline_in_service", problems, holds=False)
            return
        self.known_letters = frozenset(each["dead_letter_id"] for each in self._letters())
        machines = found["machines"]
        seen = f"{machines['num_nodes']} nodes of {machines['cluster']} ({machines['vm_size']}, {machines['device']})"
        fits = (machines["num_nodes"], machines["world_size"]) == (NUM_NODES, NUM_RANKS)
        self._need("pipeline_in_service", seen, holds=fits and machines["device"] == "cpu")

    def _stray_file(self) -> None:
        """See the event of an upload arrive."""
        path = f"{DATASET}/{self.version}/{STRAY}"
        began_s = self.clock()
        try:
            self._write(path, b"no shard")
        except AzureError as error:
            self._need("storage_writable", first_line(error), holds=False)
        self._need("storage_writable", f"{path} was written", holds=True)
        entry = self.wait(lambda: next(self._event_entries(path), None), EVENT_WITHIN_S)
        seen = f"no event within {EVENT_WITHIN_S:.0f} s"
        if entry is not None:
            seen = f"after {self.clock() - began_s:.0f} s: {entry['reason']}"
        self.results.record("upload_event", seen, holds=entry is not None)
        self.data.delete_blob(path)

    def _write(self, path: str, content: bytes) -> None:
        """Write a blob; wait for a role that was just assigned."""
        deadline_s = self.clock() + ROLE_WITHIN_S
        while True:
            try:
                self.data.upload_blob(path, content, overwrite=True)
                return
            except HttpResponseError as error:
                if error.status_code != _FORBIDDEN or self.clock() > deadline_s:
                    raise
            self.sleep(SWEEP_EVERY_S)

    def _event_entries(self, path: str) -> Iterator[Mapping[str, Any]]:
        """Yield what the history has of events about a blob that was ignored."""
        yield from (line for line in self._history(path) if line["details"].get("event_id"))

    def _shards(self) -> None:
        """See both shards accepted and a job submitted."""
        try:
            for name, content in smoke_shards().items():
                self._write(f"{DATASET}/{self.version}/{name}", content)
        except AzureError as error:
            self._need("shards_accepted", f"a shard was not written: {first_line(error)}", holds=False)
        found = self.wait(self._judged, JUDGED_WITHIN_S)
        splits = (found or self._version()).get("splits", {})
        rejected = [reason_text(one["reasons"]) for split in splits.values() for one in split["rejected"]]
        accepted = sum(split["accepted"] for split in splits.values())
        seen = "; ".join([f"{accepted} of {len(smoke_shards())} accepted", *rejected])
        self._need("shards_accepted", seen, holds=accepted == len(smoke_shards()))
        run = self.wait(self._submitted, RUN_WITHIN_S)
        if run is None:
            self._need("job_submitted", f"no run was submitted within {RUN_WITHIN_S:.0f} s", holds=False)
            return
        self.run_ids["training"] = run["run_id"]
        seen = f"{run['run_id']}: {run['state']}{because(run)}"
        self._need("job_submitted", seen, holds=run["submitted_at"] is not None)

    def _judged(self) -> dict[str, Any] | None:
        version = self._version()
        splits = version.get("splits", {}).values()
        has_rejected = any(split["num_rejected"] for split in splits)
        return version if version.get("generation") or version.get("refusal") or has_rejected else None

    def _submitted(self) -> dict[str, Any] | None:
        runs = self._version().get("runs", [])
        return next((run for run in runs if run["submitted_at"] or run["state"] in SETTLED), None)

    # -- the three runs -------------------------------------------------------------------------------------
    def _training(self) -> None:
        """See two ranks on two nodes train a model, the model registered, and people notified."""
        run = self._ended("training", "model_registered")
        reports = [line["details"] for line in self._history(run["run_id"]) if "world_size" in line["details"]]
        report = reports[-1] if reports else {}
        nodes, ranks, hosts = report.get("num_nodes"), report.get("world_size"), report.get("hosts") or []
        unknown = "no report is on record"
        self.results.record("world_size", f"{ranks} ranks" if report else unknown, holds=ranks == NUM_RANKS)
        places = "simulated by the twin" if report.get("nodes_are_simulated") else f"hosts {', '.join(hosts)}"
        are_two = report.get("nodes_are_simulated") or len(hosts) == NUM_NODES
        seen = f"{nodes} nodes, {places}" if report else unknown
        self.results.record("nodes", seen, holds=nodes == NUM_NODES and are_two)
        model = f"; {run['model_name']} version {run['model_version']}" if run["model_name"] else ""
        seen = f"{run['run_id']}: {run['state']}{because(run)}{model}"
        self.results.record("model_registered", seen, holds=run["state"] == RunState.REGISTERED and bool(model))
        self._notified(run)

    def _notified(self, run: Mapping[str, Any]) -> None:
        sent = [f"{one['recipient']}: {one['state']}{because(one, 'last_error')}" for one in run["notifications"]]
        holds = bool(sent) and all(one["state"] == "sent" for one in run["notifications"])
        self.results.record("notification_sent", "; ".join(sent) or "no notification is on record", holds=holds)

    def _failure(self) -> None:
        """Let a job fail, and see that people can read why."""
        self._request("failing", FAILS, "failure_class")
        run = self._ended("failing", "failure_class")
        seen = f"{run['state']}, {run['failure_class']}, remedy {run['remedy']}{because(run)}"
        holds = (run["state"], run["failure_class"], run["next_run_id"]) == ("failed", "missing_file", None)
        self.results.record("failure_class", seen, holds=holds)
        reason, tail = str(run["reason"]), str(run["log_tail"] or "")
        self.results.record("failure_words", reason, holds=FAILS_WITH in reason)
        said = next((line for line in tail.splitlines() if FAILS_WITH in line), None)
        lines = f"{len(tail.splitlines())} lines" if tail else "no log is on record"
        seen = f"{lines}{f', among them: {said}' if said else because(run)}"
        self.results.record("log_tail", seen, holds=said is not None)

    def _cancellation(self) -> None:
        """Cancel a running job."""
        self._request("canceled", LASTS, "cancellation")
        run_id = self.run_ids["canceled"]
        running = self.wait(lambda: self.run_in(run_id, "running", *SETTLED), RUN_WITHIN_S, sweeps=True)
        if running is None or running["state"] != "running":
            seen = f"{run_id}: {self.api.run(run_id)['state']}, not running within {RUN_WITHIN_S:.0f} s"
            self.results.record("cancellation", f"{seen}{because(running or {})}", holds=False)
            return
        self.api.cancel(run_id)
        run = self.wait(lambda: self.run_in(run_id), RUN_WITHIN_S, sweeps=True) or self.api.run(run_id)
        seen = f"{run_id}: {run['state']}{because(run)}; model {run['model_name'] or 'none'}"
        self.results.record("cancellation", seen, holds=run["state"] == "canceled" and not run["model_name"])

    def _request(self, which: str, overrides: Mapping[str, Any], assertion: str) -> None:
        try:
            self.run_ids[which] = self.api.submit(DATASET, self.version, overrides)["run_id"]
        except ApiError as error:
            self._need(assertion, f"the run was refused: {error.message}", holds=False)

    def _ended(self, which: str, assertion: str) -> dict[str, Any]:
        """Return a run once it has ended and people were notified. Raises CannotContinueError if it does not end."""
        run_id = self.run_ids[which]
        run = self.wait(lambda: self.run_in(run_id, notified=True), RUN_WITHIN_S)
        if run is None:
            run = self.api.run(run_id)
            waits = run.get("waiting") or "it may wait for nodes: see the quota of its size"
            self._need(assertion, f"{run_id}: still {run['state']} after {RUN_WITHIN_S:.0f} s; {waits}", holds=False)
        return run

    # -- what only the end can show -------------------------------------------------------------------------
    def _after_all(self) -> None:
        """Check what has arrived meanwhile: further events, dead letters, and what noticed the ends of the runs."""
        noticed = dict(self._noticed())
        if noticed.keys() >= {"training", "failing", "canceled"}:
            seen = "; ".join(f"the end of the {which} run was noticed by {whom}" for which, whom in noticed.items())
            self.results.record("end_events", seen, holds=True)
        if "training" not in self.run_ids:
            return
        stray = list(self._event_entries(f"{DATASET}/{self.version}/{STRAY}"))
        if stray:
            others = "; ".join(line["reason"] for line in stray[1:])
            self.results.record("upload_filter", others or "no event but that of its upload", holds=not others)
        letters = [each for each in self._letters() if self._is_own(each)]
        named = "; ".join(f"{each['dead_letter_id']}: {each['error']}" for each in letters[:5])
        self.results.record("queue_encoding", named or "no dead letter of this test", holds=not letters)

    def _noticed(self) -> Iterator[tuple[str, str]]:
        for which, run_id in self.run_ids.items():
            for line in self._history(run_id):
                if line["action"] in ("run_completed", "run_failed", "run_canceled") and "by" in line["details"]:
                    yield which, NOTICED_BY.get(line["details"]["by"], str(line["details"]["by"]))

    def _letters(self) -> list[dict[str, Any]]:
        return list(self.api.get("/api/dead-letters", limit=MAX_LETTERS)["dead_letters"])

    def _is_own(self, letter: Mapping[str, Any]) -> bool:
        """Whether a dead letter is, or may be, of this test: one that cannot be decoded names no subject."""
        is_about_it = self.version in letter["subject"] or not letter["subject"]
        return letter["dead_letter_id"] not in self.known_letters and is_about_it

    # -- asking ---------------------------------------------------------------------------------------------
    def _need(self, assertion: str, seen: str, *, holds: bool) -> None:
        """Note a result. Raises CannotContinueError if it does not hold."""
        if not self.results.record(assertion, seen, holds=holds):
            raise CannotContinueError

    def _version(self) -> dict[str, Any]:
        """Return what the app knows of the version; nothing before its first shard."""
        try:
            return self.api.dataset_version(DATASET, self.version)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            return {}

    def _history(self, subject: str) -> list[dict[str, Any]]:
        try:
            lines = self.api.get(f"/api/why/{quote(subject, safe='/')}")["lines"]
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            return []
        return list(lines)

    def run_in(self, run_id: str, *states: str, notified: bool = False) -> dict[str, Any] | None:
        """Return a run that is in one of the states, by default one that has ended; None for any other."""
        run = self.api.run(run_id)
        is_notified = run["notified_at"] is not None or run["state"] == "suppressed" or not notified
        return run if run["state"] in (states or SETTLED) and is_notified else None

    def wait(self, look: Callable[[], T | None], within_s: float, *, sweeps: bool = False) -> T | None:
        """Return what ``look`` finds, None if it finds nothing in time.

        If the app does not answer, it is asked again.

        ``sweeps``: ask the app to look at its runs, as the timer does anyway.
        """
        deadline_s = self.clock() + within_s
        next_sweep_s = self.clock() if sweeps else deadline_s
        while True:
            now_s = self.clock()
            try:
                found = look()
                if found is not None or now_s > deadline_s:
                    return found
                if now_s >= next_sweep_s:
                    next_sweep_s = now_s + SWEEP_EVERY_S
                    self.api.post("/api/reconcile")
            except CliError as error:
                is_final = isinstance(error, ApiError) and error.status < _UNAVAILABLE
                if is_final or now_s > deadline_s:
                    raise
            self.sleep(POLL_S)


def because(found: Mapping[str, Any], member: str = "reason") -> str:
    """Return a reason as the end of a sentence."""
    return f": {found[member]}" if found.get(member) else ""


def first_line(error: Exception) -> str:
    """Return the first line of what a service says."""
    return str(error).splitlines()[0] if str(error) else repr(error)


def smoke_shards() -> Mapping[str, bytes]:
    """Return name and content of two shards of tiny images, bright or dark: the same bytes each time."""
    return {
        "train-00000-of-00001.tfrecord": _shard(NUM_TRAIN),
        "validation-00000-of-00001.tfrecord": _shard(NUM_VALIDATION),
    }


def _shard(num_records: int) -> bytes:
    return b"".join(frame_record(encode_example(_tiny_image(number))) for number in range(num_records))


def _tiny_image(number: int) -> dict[str, int | Sequence[float]]:
    label = number % 2
    return {"label": label, "image": [label * 200.0 + (number + pixel) % 50 for pixel in range(PIXELS)]}
