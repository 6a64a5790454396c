"""Scaling, events, restarts and sudden ends of the emulator."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest

from local_azure.azurite import Azurite
from local_azure.processes import wait_until
from tests.support.azure_ml import (
    WORKSPACE_ID,
    AzureMl,
    cluster_body,
    command_job,
    mpi_job,
    start_azure_ml,
    start_with_cluster,
)
from tests.support.processes import network_of, networks_in_use

pytestmark = [pytest.mark.azurite, pytest.mark.xdist_group("azure_ml")]


def node_states(emulator: AzureMl) -> list[str]:
    """Return the state of every node of the cluster `scales`."""
    cluster = next(one for one in emulator.twin("GET", "cluster")["computes"] if one["name"] == "scales")
    return [node["state"] for node in cluster["nodes"]]


def processes_saying(mark: str) -> list[psutil.Process]:
    """Return the live processes with `mark` among their arguments."""
    return [p for p in psutil.process_iter(["cmdline"]) if mark in " ".join(p.info["cmdline"] or [])]


def test_a_cluster_comes_up_from_zero_and_goes_back(emulator: AzureMl) -> None:
    """Nodes start for a job that needs them, stay idle for a while, and are removed."""
    emulator.put("computes/scales", cluster_body(idle="PT3S")).raise_for_status()
    assert [] == node_states(emulator)
    resources = {"computeId": f"{WORKSPACE_ID}/computes/scales", "resources": {"instanceCount": 3}}
    emulator.put("jobs/needs-three", command_job("echo", **resources)).raise_for_status()
    emulator.await_status("needs-three", "Completed")
    assert ["idle"] * 3 == node_states(emulator)
    assert 3 == emulator.get("computes/scales")["properties"]["properties"]["nodeStateCounts"]["idleNodeCount"]
    wait_until(lambda: node_states(emulator) == [], what="the nodes to leave")


class Topic:
    """A topic that refuses its first event and stores the others."""

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        topic = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                events = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                topic.keys.append(self.headers["aeg-sas-key"])
                refused = len(topic.keys) == 1
                if not refused:
                    topic.taken.extend(events)
                self.send_response(503 if refused else 200)
                self.end_headers()

            def log_message(self, *_arguments: object) -> None:
                """Stay silent."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def endpoint(self) -> str:
        """The URL for publishing."""
        return f"http://127.0.0.1:{self.server.server_address[1]}/topics/azureml/api/events"


@pytest.fixture
def topic() -> Iterator[Topic]:
    """A topic for one test."""
    one = Topic()
    yield one
    one.server.shutdown()
    one.server.server_close()


def test_every_change_of_state_is_an_event(tmp_path: Path, azurite: Azurite, topic: Topic) -> None:
    """Events are in order, have the topic's key, and are repeated after a refusal; RunCompleted comes last."""
    emulator = start_with_cluster(
        tmp_path, azurite, "--events-endpoint", topic.endpoint, LANDFALL_TWIN_TOPIC_KEY="key-of-the-topic"
    )
    emulator.put("jobs/good", command_job("echo", tags={"a": "1"}, experimentName="digits")).raise_for_status()
    emulator.await_status("good", "Completed")
    wait_until(lambda: len(topic.taken) == 8, what="the events of the good job")
    emulator.put("jobs/bad", command_job("exit 1")).raise_for_status()
    emulator.await_status("bad", "Failed")
    emulator.process.stop()
    published = [(event["eventType"].rpartition(".")[2], event["data"].get("runStatus")) for event in topic.taken]
    walk = ["NotStarted", "Starting", "Preparing", "Queued", "Running"]
    good = [("RunStatusChanged", state) for state in (*walk, "Finalizing", "Completed")]
    bad = [("RunStatusChanged", state) for state in (*walk, "Failed")]
    assert [*good, ("RunCompleted", None), *bad] == published
    assert {"key-of-the-topic"} == set(topic.keys)
    first = topic.taken[0]
    assert first["subject"] == f"experiments/{first['data']['experimentId']}/runs/good"
    assert ({"a": "1"}, "digits") == (first["data"]["runTags"], first["data"]["experimentName"])


def test_state_outlives_a_restart(tmp_path: Path, azurite: Azurite) -> None:
    """Jobs, computes, assets, certificate and tokens are kept; an unfinished run has failed, with a reason."""
    first = start_with_cluster(tmp_path, azurite)
    first.put("jobs/done", command_job("echo kept")).raise_for_status()
    first.await_status("done", "Completed")
    first.put("jobs/open", command_job("sleep 300")).raise_for_status()
    first.await_status("open", "Running")
    certificate, token = (first.state / "ca.pem").read_bytes(), first.token()
    alias = Path((first.state / "runs" / "open" / "alias").read_text())
    first.process.kill()
    second = start_azure_ml(tmp_path, azurite)
    message = second.details("open")["error"]["error"]["message"]
    assert ("Completed", "Failed") == (second.status("done"), second.status("open"))
    assert "The Azure ML emulator was stopped while this run was Running; its processes ended with it." == message
    assert not alias.parent.exists()
    assert certificate == (second.state / "ca.pem").read_bytes()
    with second.http() as http:
        answer = http.get(second.get("computes/cluster")["id"], headers={"Authorization": f"Bearer {token}"})
        assert (200, "kept\n") == (answer.status_code, http.get("/twin/jobs/done/log").text)
    assert 200 == second.put("computes/cluster", cluster_body()).status_code
    second.process.stop()


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL])
def test_no_process_outlives_the_emulator(tmp_path: Path, azurite: Azurite, number: signal.Signals) -> None:
    """However it ends, the command and the processes that it started end, too."""
    mark = f"3{os.getpid()}{number:02d}"
    emulator = start_with_cluster(tmp_path, azurite)
    emulator.put("jobs/lasts", command_job(f"sleep {mark} & sleep {mark}; echo")).raise_for_status()
    wait_until(lambda: len(processes_saying(f"sleep {mark}")) >= 3, what="the command to run")
    emulator.process.popen.send_signal(number)
    emulator.process.await_end()
    wait_until(lambda: not processes_saying(f"sleep {mark}"), what="the command to end")
    assert Counter() == Counter(process.name() for process in processes_saying(f"sleep {mark}"))


@pytest.mark.distributed
@pytest.mark.parametrize("victim", ["mpirun", "guard"])
def test_no_rank_outlives_what_started_it(emulator: AzureMl, victim: str) -> None:
    """If mpirun or its guard is killed, the job fails and its ranks end."""
    mark = f"3{os.getpid()}{len(victim):02d}"
    emulator.put(f"jobs/{victim}-dies", mpi_job(f"exec sleep {mark}")).raise_for_status()
    ranks = wait_until(
        lambda: found if len(found := [p for p in processes_saying(mark) if p.name() == "sleep"]) == 2 else None,
        what="two ranks",
    )
    guard = next(process for process in ranks[0].parents() if "local_azure.guard" in " ".join(process.cmdline()))
    (mpirun,) = guard.children()
    killed = mpirun if victim == "mpirun" else guard
    killed.kill()
    wait_until(lambda: not processes_saying(mark), what="the ranks to end")
    assert "Failed" == emulator.await_status(f"{victim}-dies")


@pytest.mark.distributed
@pytest.mark.parametrize("how", ["cancel", "kill"])
def test_no_network_of_a_job_outlives_it(tmp_path: Path, azurite: Azurite, how: str) -> None:
    """This holds if the job is canceled or the emulator is killed; both nodes have a network until then."""
    mark = f"3{os.getpid()}{len(how):02d}"
    emulator = start_with_cluster(tmp_path, azurite)
    if because := emulator.twin("GET", "cluster")["simulated_because"]:
        pytest.skip(because)
    emulator.put("jobs/on-hosts", mpi_job(f"exec sleep {mark}")).raise_for_status()
    ranks = wait_until(
        lambda: found if len(found := [p for p in processes_saying(mark) if p.name() == "sleep"]) == 2 else None,
        what="two ranks",
    )
    networks = {network for rank in ranks if (network := network_of(rank.pid)) is not None}
    assert 2 == len(networks - {network_of("self")})
    if how == "cancel":
        emulator.ask("POST", f"{WORKSPACE_ID}/jobs/on-hosts/cancel").raise_for_status()
        emulator.await_status("on-hosts", "Canceled")
    else:
        emulator.process.kill()
    wait_until(lambda: not networks & networks_in_use(), what="the networks to end")
    emulator.process.stop()
