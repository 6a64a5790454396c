"""Events about runs reach their topic, also one that starts after the emulator."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from local_azure.azure_ml.events import EventPublisher
from local_azure.azure_ml.runs import Run, RunState
from local_azure.azure_ml.service import iso, utcnow
from local_azure.processes import wait_until

HANG_UPS = 6
"""More than an event is tried at a topic that answers."""


class LateTopic(HTTPServer):
    """Closes the first connections, like a port without a server; then takes every event."""

    def __init__(self) -> None:
        self.callers = 0
        self.taken: list[dict[str, Any]] = []
        super().__init__(("127.0.0.1", 0), Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether to listen to this caller."""
        del request, client_address
        self.callers += 1
        return self.callers > HANG_UPS


class Handler(BaseHTTPRequestHandler):
    """Takes events; anything but a POST is refused, as by a topic."""

    server: LateTopic

    def do_POST(self) -> None:
        """Keep the events."""
        self.server.taken += json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        """Stay silent."""


def failed_run() -> Run:
    """A run that ended with a former life of the emulator."""
    return Run(name="r", workspace_id="/w", properties={}, status=RunState.FAILED, created_at=iso(utcnow()))


def test_a_topic_that_starts_late_hears_of_everything() -> None:
    """What became of interrupted runs is said at the start, before anybody listens; it is kept until then."""
    with LateTopic() as topic:
        threading.Thread(target=topic.serve_forever, daemon=True).start()
        publisher = EventPublisher(f"http://127.0.0.1:{topic.server_address[1]}/topics/azureml/api/events", None)
        publisher.start()
        publisher.run_changed(failed_run())
        wait_until(lambda: topic.taken, what="the event to arrive")
        publisher.stop()
        topic.shutdown()
    assert ["Failed"] == [event["data"]["runStatus"] for event in topic.taken]


def test_an_emulator_can_stop_while_its_topic_is_not_there() -> None:
    """The wait for a topic ends with the emulator."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and does not listen: connections are refused
        publisher = EventPublisher(f"http://127.0.0.1:{unused.getsockname()[1]}/", None)
        publisher.start()
        publisher.run_changed(failed_run())
        publisher.stop()
    assert [] == [thread.name for thread in threading.enumerate() if thread.name == "events"]
