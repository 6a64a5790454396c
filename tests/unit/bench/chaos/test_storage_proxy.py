"""The network before storage: what passes is unchanged, and each fault has the effect that it says, or none."""

from __future__ import annotations

import http.client
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bench.chaos.storage_faults import some_faults
from bench.chaos.storage_proxy import StorageFault, StorageProxy, storage_proxy, through

CONNECTION = "AccountName=a;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:1/a;QueueEndpoint=http://127.0.0.1:2/a;"


class Storage(ThreadingHTTPServer):
    """Notes what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str, bytes]] = []


class Handler(BaseHTTPRequestHandler):
    """Takes everything."""

    server: Storage

    def do_PUT(self) -> None:
        """Note a request, and answer with a header of its own."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.path, self.headers["Authorization"], body))
        self.send_response_only(201)
        self.send_header("ETag", '"0x1"')
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"done")


@pytest.fixture
def storage() -> Iterator[Storage]:
    """Something that listens."""
    with Storage() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def put(port: int) -> tuple[int, str | None, bytes]:
    """Ask once; return status, ETag and body. Raises where the connection ends without an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30.0)
    try:
        connection.request("PUT", "/a/container?x=1", body=b"content", headers={"Authorization": "SharedKey a:b"})
        answer = connection.getresponse()
        return answer.status, answer.getheader("ETag"), answer.read()
    finally:
        connection.close()


def test_what_meets_no_fault_passes_unchanged(storage: Storage) -> None:
    """Path, signature and content arrive, and the answer comes back."""
    with storage_proxy({"blob": storage.server_address[1]}) as (_, ports):
        answer = put(ports["blob"])
    assert (201, '"0x1"', b"done") == answer
    assert [("/a/container?x=1", "SharedKey a:b", b"content")] == storage.asked


@pytest.mark.parametrize(
    ("fault", "status", "effects"),
    [(StorageFault.THROTTLED, 429, 0), (StorageFault.BUSY, 503, 0), (StorageFault.TIMED_OUT, 500, 1)],
)
def test_a_refusal_has_no_effect_and_a_time_out_has_one(
    storage: Storage, fault: StorageFault, status: int, effects: int
) -> None:
    """A client that is told 500 cannot know."""
    with storage_proxy({"blob": storage.server_address[1]}) as (proxy, ports):
        proxy.draw = lambda *_: fault
        seen = put(ports["blob"])[0]
    assert (status, effects, 1) == (seen, len(storage.asked), proxy.done[fault])


@pytest.mark.parametrize(("fault", "effects"), [(StorageFault.DROPPED, 0), (StorageFault.LOST, 1)])
def test_a_connection_ends_before_or_after_the_effect(storage: Storage, fault: StorageFault, effects: int) -> None:
    """Both look the same from outside."""
    with storage_proxy({"blob": storage.server_address[1]}) as (proxy, ports):
        proxy.draw = lambda *_: fault
        with pytest.raises(http.client.RemoteDisconnected):
            put(ports["blob"])
    assert effects == len(storage.asked)


def test_a_connection_string_leads_through_the_proxy() -> None:
    """Account and key stay, and so do services that have no proxy."""
    expected = CONNECTION.replace("127.0.0.1:1", "127.0.0.1:7")
    assert expected == through(CONNECTION, {"blob": 7, "table": 9})


def test_faults_follow_from_the_seed_and_spare_the_host() -> None:
    """Equal seeds draw equal faults; messages that the Functions host reads, and its own blobs, always pass."""
    drawn = [fates("one"), fates("one"), fates("another")]
    draw = some_faults(random.Random(1), 1.0)  # noqa: S311 (a storm, not secrets)
    host = [
        draw("queue", "GET", "/a/q/messages"),
        draw("queue", "PUT", "/a/q"),
        draw("blob", "PUT", "/a/azure-webjobs-hosts/x"),
    ]
    sent = draw("queue", "POST", "/a/q/messages")
    assert (drawn[0], [None] * 3, True) == (drawn[1], host, sent is not None)
    assert drawn[0] != drawn[2]


def fates(seed: str) -> list[StorageFault | None]:
    """Draw for a hundred requests."""
    draw = some_faults(random.Random(seed), 0.2)  # noqa: S311 (a storm, not secrets)
    return [draw("table", "PUT", "/a/t") for _ in range(100)]


def test_a_proxy_begins_calm() -> None:
    """Nothing is disturbed before somebody says so."""
    assert StorageProxy().decide("table", "PUT", "/a/t") is None
