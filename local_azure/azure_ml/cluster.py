"""A simulated cluster whose nodes start from zero, wait, run and leave. Pure: the caller passes the time.

`ClusterPool` has the live clusters; one thread advances them, and runs wait for their nodes.
"""

from __future__ import annotations

import contextlib
import copy
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from local_azure.azure_ml.service import JobFailure, RunCanceled

TICK_S = 0.05


class NodeState(StrEnum):
    """State of a node, as the service counts nodes."""

    PREPARING = "preparing"
    IDLE = "idle"
    RUNNING = "running"
    LEAVING = "leaving"


@dataclass(kw_only=True)
class Node:
    """One simulated machine; `since_s` is when it entered its state, on the monotonic clock."""

    node_id: str
    state: NodeState
    since_s: float
    run: str | None = None


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Scale settings of a cluster: minimum nodes, maximum nodes, seconds that a node may idle."""

    min_nodes: int
    max_nodes: int
    idle_s: float


@dataclass(frozen=True, kw_only=True)
class Delays:
    """Seconds that a simulated node takes to start and to leave."""

    start_s: float
    leave_s: float


@dataclass(kw_only=True)
class Cluster:
    """Nodes, and the runs that wait for them in order of arrival."""

    scale: Scale
    delays: Delays
    nodes: list[Node] = field(default_factory=list)
    waiting: dict[str, int] = field(default_factory=dict)  # run → number of requested nodes, in order of arrival

    def ask(self, run: str, count: int) -> None:
        """Queue `run` for `count` nodes."""
        self.waiting[run] = count

    def release(self, run: str, now_s: float) -> None:
        """Release the nodes of `run`, or its place in the queue."""
        self.waiting.pop(run, None)
        for node in self.nodes:
            if node.run == run:
                node.run = None
                _enter(node, NodeState.IDLE, now_s)

    def holds(self, run: str) -> bool:
        """Return whether `run` has its nodes."""
        return any(node.run == run for node in self.nodes)

    def tick(self, now_s: float) -> None:
        """Advance the cluster to `now_s`: finish transitions, assign nodes, start and stop nodes."""
        self._finish_moves(now_s)
        self._grant(now_s)
        self._start_nodes(now_s)
        self._stop_nodes(now_s)

    def count(self, *states: NodeState) -> int:
        """Return how many nodes are in any of `states`."""
        return sum(node.state in states for node in self.nodes)

    @property
    def target(self) -> int:
        """Number of nodes, without leaving nodes."""
        return len(self.nodes) - self.count(NodeState.LEAVING)

    def _finish_moves(self, now_s: float) -> None:
        for node in self.nodes:
            if node.state is NodeState.PREPARING and now_s - node.since_s >= self.delays.start_s:
                _enter(node, NodeState.IDLE, now_s)
        self.nodes = [
            node
            for node in self.nodes
            if node.state is not NodeState.LEAVING or now_s - node.since_s < self.delays.leave_s
        ]

    def _idle(self) -> list[Node]:
        return [node for node in self.nodes if node.state is NodeState.IDLE]

    def _grant(self, now_s: float) -> None:
        for run, wanted in list(self.waiting.items()):
            idle = self._idle()
            if len(idle) < wanted:
                return  # strictly in order, so that small jobs do not overtake a large one forever
            for node in idle[:wanted]:
                node.run = run
                _enter(node, NodeState.RUNNING, now_s)
            del self.waiting[run]

    def _start_nodes(self, now_s: float) -> None:
        free = self.count(NodeState.IDLE, NodeState.PREPARING)
        missing = max(sum(self.waiting.values()) - free, self.scale.min_nodes - self.target)
        for _ in range(min(missing, self.scale.max_nodes - len(self.nodes))):
            self.nodes.append(Node(node_id=f"tvmps_{uuid.uuid4().hex}_d", state=NodeState.PREPARING, since_s=now_s))

    def _stop_nodes(self, now_s: float) -> None:
        if self.waiting:
            return
        for node in self._idle():
            if self.target > self.scale.min_nodes and now_s - node.since_s >= self.scale.idle_s:
                _enter(node, NodeState.LEAVING, now_s)


def _enter(node: Node, state: NodeState, now_s: float) -> None:
    node.state, node.since_s = state, now_s


class ClusterPool:
    """Clusters by compute id; thread-safe."""

    def __init__(self, delays: Delays) -> None:
        self._delays = delays
        self._clusters: dict[str, Cluster] = {}
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._move, name="clusters", daemon=True)

    def start(self) -> None:
        """Start the thread that advances the clusters."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. Nodes exist only in memory."""
        self._stopping.set()
        self._thread.join()

    def configure(self, compute_id: str, scale: Scale) -> None:
        """Create the cluster of a compute, or change how it scales."""
        with self._changed:
            cluster = self._clusters.setdefault(compute_id.lower(), Cluster(scale=scale, delays=self._delays))
            cluster.scale = scale

    @contextlib.contextmanager
    def nodes(self, compute_id: str, run: str, count: int, canceled: threading.Event) -> Iterator[None]:
        """Hold `count` nodes for `run`. Raises JobFailure if the cluster is too small, RunCanceled on cancel."""
        cluster = self._clusters[compute_id.lower()]
        if count > cluster.scale.max_nodes:
            raise JobFailure(
                f"Requested {count} nodes but AzureMLCompute cluster only has "
                f"{cluster.scale.max_nodes} maximum nodes.",
                inner="InvalidNodeCount",
            )
        with self._changed:
            cluster.ask(run, count)
        try:
            self._await_nodes(cluster, run, canceled)
            yield
        finally:
            with self._changed:
                cluster.release(run, time.monotonic())

    def snapshot(self, compute_id: str) -> Cluster:
        """Return a copy of a compute's current cluster."""
        with self._changed:
            return copy.deepcopy(self._clusters[compute_id.lower()])

    def _await_nodes(self, cluster: Cluster, run: str, canceled: threading.Event) -> None:
        with self._changed:
            while not cluster.holds(run):
                if canceled.is_set():
                    raise RunCanceled
                self._changed.wait(TICK_S)

    def _move(self) -> None:
        while not self._stopping.wait(TICK_S):
            with self._changed:
                for cluster in self._clusters.values():
                    cluster.tick(time.monotonic())
                self._changed.notify_all()
