"""The live clusters of the emulator: one thread moves them, runs wait on them."""

from __future__ import annotations

import contextlib
import copy
import threading
import time
from collections.abc import Iterator

from local_azure.azure_ml.cluster import Cluster, Delays, Scale
from local_azure.azure_ml.errors import JobFailure, RunCanceled

TICK_S = 0.05


class ClusterPool:
    """Clusters by compute id; safe between threads."""

    def __init__(self, delays: Delays) -> None:
        self._delays = delays
        self._clusters: dict[str, Cluster] = {}
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._move, name="clusters", daemon=True)

    def start(self) -> None:
        """Let time pass for the clusters."""
        self._thread.start()

    def stop(self) -> None:
        """Stop moving; nodes exist in memory only, so nothing is left."""
        self._stopping.set()
        self._thread.join()

    def configure(self, compute_id: str, scale: Scale) -> None:
        """Create the cluster of a compute, or change how it scales."""
        with self._changed:
            cluster = self._clusters.setdefault(compute_id.lower(), Cluster(scale=scale, delays=self._delays))
            cluster.scale = scale

    @contextlib.contextmanager
    def nodes(self, compute_id: str, run: str, count: int, canceled: threading.Event) -> Iterator[None]:
        """Hold `count` nodes for `run`; JobFailure where the cluster can never have them, RunCanceled on cancel."""
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
        """A copy of the cluster of a compute as it is now."""
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
