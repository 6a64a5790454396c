"""The development host as a process, with the app in tests/fixtures/dev_host_app or another one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from local_azure.processes import PATIENCE_S, Process, functions_host_program, listening_url, wait_until
from tests.support.processes import REPOSITORY

FIXTURE_APP = REPOSITORY / "tests" / "fixtures" / "dev_host_app"


@dataclass(frozen=True, kw_only=True)
class DevHost:
    """A running development host."""

    process: Process
    url: str
    """The URL, without a slash at the end."""
    journal: Path
    """The file in which the fixture app records its invocations."""

    def request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        """Send a request and return the response, whatever its status."""
        return httpx.request(method, f"{self.url}{path}", timeout=PATIENCE_S, **arguments)

    def journalled(self, kind: str) -> list[dict[str, Any]]:
        """Return the fixture app's entries of ``kind`` so far, in order."""
        lines = self.journal.read_text(encoding="utf-8").splitlines() if self.journal.is_file() else []
        return [entry for entry in map(json.loads, lines) if entry["kind"] == kind]

    def wait_for_bodies(self, *bodies: str, timeout_s: float = PATIENCE_S) -> list[dict[str, Any]]:
        """Return the queue entries with one of ``bodies``, once all of them have arrived."""

        def arrived() -> list[dict[str, Any]] | None:
            entries = [entry for entry in self.journalled("queue") if entry["body"] in bodies]
            return entries if {entry["body"] for entry in entries} == set(bodies) else None

        return wait_until(arrived, what=f"the queue function to get {bodies}", timeout_s=timeout_s)


def start_dev_host_process(
    folder: Path, settings: Mapping[str, str], *arguments: str, root: Path = FIXTURE_APP, port: int = 0
) -> Process:
    """Start the development host (port 0: any free port), without waiting for it."""
    program = functions_host_program(
        log=folder / "dev_host.log", root=root, settings=settings, port=port, options=arguments
    )
    return Process(program, guarded=False)


def start_dev_host(
    folder: Path, settings: Mapping[str, str], *arguments: str, root: Path = FIXTURE_APP, port: int = 0
) -> DevHost:
    """Start the development host (port 0: any free port), and wait for it. ``settings`` need FIXTURE_JOURNAL."""
    process = start_dev_host_process(folder, settings, *arguments, root=root, port=port)
    return DevHost(
        process=process, url=listening_url(process.await_ready()), journal=Path(settings["FIXTURE_JOURNAL"])
    )


def fixture_settings(storage: str, queue: str, journal: Path, schedule: str = "0 0 0 1 1 *") -> dict[str, str]:
    """Return the fixture app's settings: storage, queue name, journal and the timer's schedule."""
    return {
        "AzureWebJobsStorage": storage,
        "FIXTURE_JOURNAL": str(journal),
        "FIXTURE_QUEUE": queue,
        "FIXTURE_SCHEDULE": schedule,
    }
