"""The storage proxy: passed requests are unchanged, and each fault has the described effect."""

from __future__ import annotations

import http.client
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from local_azure.processes import PATIENCE_S
from tests.chaos.faults import storage_faults
from tests.chaos.storage_proxy import StorageFault, StorageProxy, storage_proxy, through

CONNECTION = "AccountName=a;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:1/a;QueueEndpoint=http://127.0.0.1:2/a;"


class Storage(ThreadingHTTPServer):
    """Records the requests that it receives."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.received: list[tuple[str, str, bytes]] = []


class Handler(BaseHTTPRequestHandler):
    """Accepts every PUT."""

    server: Storage

    def do_PUT(self) -> None:
        """Record the request and answer with an ETag."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((self.path, self.headers["Authorization"], body))
        self.send_response_only(201)
        self.send_header("ETag", '"0x1"')
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"done")


@pytest.fixture
def storage() -> Iterator[Storage]:
    """Run a server in place of storage."""
    with Storage() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def put(port: int) -> tuple[int, str | None, bytes]:
    """Send one PUT; return status, ETag and body. Raises if the connection ends without an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("PUT", "/a/container?x=1", body=b"content", headers={"Authorization": "SharedKey a:b"})
        answer = connection.getresponse()
        return answer.status, answer.getheader("ETag"), answer.read()
    finally:
        connection.close()


def test_a_request_without_a_fault_passes_unchanged(storage: Storage) -> None:
    """Path, signature and content reach storage, and its answer reaches the client."""
    with storage_proxy({"blob": storage.server_address[1]}) as (_, ports):
        answer = put(ports["blob"])
    assert (201, '"0x1"', b"done") == answer
    assert [("/a/container?x=1", "SharedKey a:b", b"content")] == storage.received


@pytest.mark.parametrize(
    ("fault", "status", "effects"),
    [(StorageFault.THROTTLED, 429, 0), (StorageFault.BUSY, 503, 0), (StorageFault.TIMED_OUT, 500, 1)],
)
def test_a_refusal_has_no_effect_and_a_time_out_has_one(
    storage: Storage, fault: StorageFault, status: int, effects: int
) -> None:
    """A client that receives 500 cannot know whether its request had an effect."""
    with storage_proxy({"blob": storage.server_address[1]}) as (proxy, ports):
        proxy.draw = lambda *_: fault
        seen = put(ports["blob"])[0]
    assert (status, effects, 1) == (seen, len(storage.received), proxy.done[fault])


@pytest.mark.parametrize(("fault", "effects"), [(StorageFault.DROPPED, 0), (StorageFault.LOST, 1)])
def test_a_connection_ends_before_or_after_the_effect(storage: Storage, fault: StorageFault, effects: int) -> None:
    """Both look the same to the client."""
    with storage_proxy({"blob": storage.server_address[1]}) as (proxy, ports):
        proxy.draw = lambda *_: fault
        with pytest.raises(http.client.RemoteDisconnected):
            put(ports["blob"])
    assert effects == len(storage.received)


def test_a_connection_string_is_moved_to_the_ports_of_the_proxy() -> None:
    """Account and key stay, and so do services without a proxy."""
    expected = CONNECTION.replace("127.0.0.1:1", "127.0.0.1:7")
    assert expected == through(CONNECTION, {"blob": 7, "table": 9})


def test_faults_follow_from_the_seed_and_spare_the_host() -> None:
    """Equal seeds draw equal faults; the Functions host's own requests always pass."""
    drawn = [fates("one"), fates("one"), fates("another")]
    draw = storage_faults(random.Random(1), 1.0)  # noqa: S311 (a storm, not secrets)
    host = [
        draw("queue", "GET", "/a/q/messages"),
        draw("queue", "PUT", "/a/q"),
        draw("blob", "PUT", "/a/azure-webjobs-hosts/x"),
    ]
    sent = draw("queue", "POST", "/a/q/messages")
    assert (drawn[0], [None] * 3, True) == (drawn[1], host, sent is not None)
    assert drawn[0] != drawn[2]


def fates(seed: str) -> list[StorageFault | None]:
    """Draw for 100 requests."""
    draw = storage_faults(random.Random(seed), 0.2)  # noqa: S311 (a storm, not secrets)
    return [draw("table", "PUT", "/a/t") for _ in range(100)]


def test_a_new_proxy_lets_every_request_pass() -> None:
    """A new proxy draws no faults."""
    assert StorageProxy().decide("table", "PUT", "/a/t") is None
