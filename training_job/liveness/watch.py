"""The training loop's side of the heartbeat: the loop enters a place, the heartbeat's thread reports it."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import NoReturn

from training_job import collective
from training_job.errors import RankLostError, end_job, print_error
from training_job.liveness.heartbeat import HeartbeatThread, RootAddress, open_root_socket, this_process
from training_job.liveness.liveness import Heartbeat, Liveness, Rendezvous
from training_job.process_environment import launched_rank

_ROOT = 0
_MAX_ADDRESS_BYTES = 2048


class Watch:
    """Where this rank is, for the heartbeat's thread to read."""

    def __init__(self, rank: int) -> None:
        host, process_id = this_process()
        self._heartbeat = Heartbeat(rank=rank, count=0, place="start", step=0, host=host, process_id=process_id)
        self.thread: HeartbeatThread | None = None

    def enter(self, place: str, step: int) -> None:
        """Record that the loop enters a place; all ranks enter the same places in the same order."""
        self._heartbeat = replace(self._heartbeat, count=self._heartbeat.count + 1, place=place, step=step)

    def heartbeat(self) -> Heartbeat:
        """Return where this rank is now."""
        return self._heartbeat

    def stop(self) -> None:
        """End the watch: ranks may exit one after the other from now on."""
        if self.thread is not None:
            self.thread.stop()


def start_watch(world: collective.World, timeout_s: float) -> Watch:
    """Start this rank's heartbeat; every rank must call it."""
    watch = Watch(world.rank)
    if world.size == 1:
        return watch
    watch.thread = thread = HeartbeatThread(watch.heartbeat, timeout_s=timeout_s, give_up=end_process)
    if world.is_root:
        receiver, address = open_root_socket(one_node=world.num_nodes == 1)
        _from_root(address.to_bytes())
        thread.start_root(receiver, address, Liveness(timeout_s, range(world.size)))
    else:
        thread.start_rank(RootAddress.from_bytes(_from_root(b"")), Liveness(timeout_s, [_ROOT]))
    return watch


def start_deadline(seconds: float, rendezvous: Rendezvous) -> threading.Timer:
    """End this process unless the timer is cancelled in time: ranks that never connect must not wait for ever."""
    timer = threading.Timer(seconds, lambda: end_process(rendezvous.verdict(seconds)))
    timer.daemon = True
    timer.start()
    return timer


def end_process(verdict: str) -> NoReturn:
    """End this process at once, and thereby the job: the main thread may hang forever."""
    error = RankLostError(verdict)
    print_error(error, launched_rank())
    end_job(error.exit_code)


def _from_root(content: bytes) -> bytes:
    return collective.bytes_from_root(content, max_bytes=_MAX_ADDRESS_BYTES, name="root address")
