"""A local stand-in for the scheduled events of Azure's instance metadata service (documentation of Linux VMs)."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Self


class MetadataService:
    """Lists the announced events; its response can be replaced by anything."""

    def __init__(self) -> None:
        self.answer = json.dumps({"DocumentIncarnation": 1, "Events": []}).encode()
        self.bytes_instead = b""
        """What to send instead of a response in HTTP."""
        self.asked = 0
        self.headers: list[str | None] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service.headers.append(self.headers["Metadata"])
                if service.bytes_instead:
                    self.wfile.write(service.bytes_instead)
                else:
                    self.send_response(200)
                    self.end_headers()
                    self.wfile.write(service.answer)
                service.asked += 1

            def log_message(self, *_arguments: object) -> None:
                """Stay silent."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """The URL of the service."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/metadata/scheduledevents?api-version=2020-07-01"

    def announce(self, event_id: str, kind: str) -> None:
        """List this one event from now on."""
        event = {
            "EventId": event_id,
            "EventType": kind,
            "ResourceType": "VirtualMachine",
            "Resources": ["node_0"],
            "EventStatus": "Scheduled",
            "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT",
            "Description": "",
            "EventSource": "Platform",
            "DurationInSeconds": -1,
        }
        self.answer = json.dumps({"DocumentIncarnation": 2, "Events": [event]}).encode()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
