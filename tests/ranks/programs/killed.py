"""A training that is killed at a moment of the test's choice: KILLED=<rank>:<step>:<where>.

``step`` is in the middle of that step, ``file`` while the first checkpoint from then on is half written,
``pointer`` when its file is complete and nothing points to it yet.
"""

from __future__ import annotations

import os
import shutil
from typing import Any, BinaryIO

from tests.ranks.programs.changed import before_each_step, end_here, train_changed
from training_job.checkpoints import store
from training_job.session import Session

RANK, STEP, WHERE = os.environ["KILLED"].split(":")


def half_a_copy(reader: BinaryIO, writer: BinaryIO, _length: int) -> None:
    """Write a part of a file, and end."""
    writer.write(reader.read(1000))
    writer.flush()
    end_here()


def kill(session: Session) -> None:
    """Install the trap on one rank."""
    if session.world.rank != int(RANK):
        return
    if WHERE == "step":
        before_each_step(session, lambda _: end_here() if session.position.step == int(STEP) else None)
        return
    checkpoints = session.job.checkpoints
    save = checkpoints.save

    def save_and_die(position: Any, variables: Any) -> Any:
        if position.step >= int(STEP):
            if WHERE == "file":
                shutil.copyfileobj = half_a_copy  # type: ignore[assignment]  # that is the trap
            else:
                store.put_bytes = end_here  # type: ignore[attr-defined]  # the same
        return save(position, variables)

    checkpoints.save = save_and_die  # type: ignore[method-assign]  # the same


if __name__ == "__main__":
    train_changed(kill)
