"""A training in which every rank writes down the labels of each step's batch: NOTES_FOLDER/labels-<rank>.json."""

from __future__ import annotations

import json
from typing import Any

from tests.ranks.programs.changed import NOTES, before_each_step, train_changed
from training_job.session import Session


def note(session: Session) -> None:
    """Write all that was seen so far before each step."""
    seen: list[list[int]] = []

    def write(batch: Any) -> None:
        seen.append(batch[1].numpy().ravel().tolist())
        (NOTES / f"labels-{session.world.rank}.json").write_text(json.dumps(seen))

    before_each_step(session, write)


if __name__ == "__main__":
    train_changed(note)
