"""Which ranks are missing when they do not meet in time: each leaves a mark in a folder that all nodes share.

A rank that is dead, stopped or was never started leaves none. The marks are files, because everything else that
ranks could use to communicate needs them to have met.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from training_job.process_environment import launched_rank, launched_world_size, run_id

_MARKING_S = 5.0
"""How long a rank waits for the marks of the others: ranks start within seconds of each other."""
_LAUNCH_VARIABLE = "PMIX_NAMESPACE"
"""Open MPI's name for one launch, the same on all its ranks."""


@dataclass(frozen=True, kw_only=True)
class Rendezvous:
    """A folder that all ranks of one launch see."""

    folder: Path
    """For this launch only, so that marks of an earlier one do not count."""
    rank: int
    world_size: int

    @classmethod
    def under(cls, folder: Path) -> Rendezvous:
        """Return this launch's rendezvous, in a subfolder of one that all nodes share."""
        launch = os.environ.get(_LAUNCH_VARIABLE, run_id())
        return cls(folder=folder / f"rendezvous-{launch}", rank=launched_rank(), world_size=launched_world_size())

    def verdict(self, deadline_s: float) -> str:
        """Leave this rank's mark, wait for those of the others, return the paragraph that names missing ranks."""
        intro = f"The ranks should have met within {deadline_s:g} s."
        try:
            present = self._present()
        except OSError as error:
            return f"{intro} Which ranks are missing could not be found out in {self.folder}: {error.strerror}."
        absent = [rank for rank in range(self.world_size) if rank not in present]
        if not absent:
            return (
                f"{intro} All {self.world_size} are alive, but cannot reach each other: look at the network "
                f"between the nodes."
            )
        return (
            f"{intro} Of {self.world_size}, rank{'s' if len(absent) > 1 else ''} {', '.join(map(str, absent))} gave "
            f"no sign: dead, stopped or not started. Look at the log of each."
        )

    def _present(self) -> set[int]:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / str(self.rank)).touch()
        time.sleep(_MARKING_S)
        return {int(mark.name) for mark in self.folder.iterdir() if mark.name.isdecimal()}
