"""The training loop's side of the heartbeat: it says where it is."""

from __future__ import annotations

import os
import sys
import threading

from training_job import collective
from training_job.errors import RankLostError
from training_job.last_words import say
from training_job.survival.attendance import Attendance
from training_job.survival.heartbeat import Heartbeat, MeetingPoint, open_meeting_point, this_process
from training_job.survival.roll_call import Beat

_MAX_MEETING_POINT_BYTES = 2048


class Watch:
    """Where this rank is, for the heartbeat's thread to tell."""

    def __init__(self, rank: int) -> None:
        host, process_id = this_process()
        self._beat = Beat(rank=rank, count=0, place="start", step=0, host=host, process_id=process_id)
        self.heartbeat: Heartbeat | None = None

    def enter(self, place: str, step: int) -> None:
        """Say that the loop comes to a place; all ranks come to the same places in the same order."""
        last = self._beat
        self._beat = Beat(
            rank=last.rank,
            count=last.count + 1,
            place=place,
            step=step,
            host=last.host,
            process_id=last.process_id,
        )

    def beat(self) -> Beat:
        """Return where this rank is now."""
        return self._beat

    def stop(self) -> None:
        """End the watch: from here on ranks may leave one after the other."""
        if self.heartbeat is not None:
            self.heartbeat.stop()


def start_watch(world: collective.World, timeout_s: float) -> Watch:
    """Start the heartbeat of this rank; every rank has to come here."""
    watch = Watch(world.rank)
    if world.size == 1:
        return watch
    watch.heartbeat = heartbeat = Heartbeat(watch.beat, timeout_s=timeout_s, give_up=end_process)
    if world.is_root:
        receiver, point = open_meeting_point(one_node=world.num_nodes == 1)
        _tell(point.to_bytes())
        heartbeat.start_root(receiver, point, world.size)
    else:
        heartbeat.start_rank(MeetingPoint.from_bytes(_tell(b"")))
    return watch


def start_deadline(seconds: float, attendance: Attendance) -> threading.Timer:
    """End this process unless the timer is cancelled in time: ranks that never meet should not wait for ever."""
    timer = threading.Timer(seconds, lambda: end_process(attendance.verdict(seconds)))
    timer.daemon = True
    timer.start()
    return timer


def end_process(verdict: str) -> None:
    """End this process at once, and by that the job: the main thread may hang for good."""
    error = RankLostError(verdict)
    say(error)
    sys.stdout.flush()
    os._exit(error.exit_code)


def _tell(content: bytes) -> bytes:
    return collective.told_by_root(content, max_bytes=_MAX_MEETING_POINT_BYTES, name="meeting point")
