"""A training in which every rank notes what its step gives to Horovod: NOTES_FOLDER/allreduces-<rank>.json.

Each entry is the shape of a tensor that was averaged while the step was traced.
"""

from __future__ import annotations

import json
from typing import Any

import horovod.tensorflow as hvd

from tests.ranks.programs.changed import NOTES, train_changed
from training_job.session import Session

allreduce = hvd.allreduce


def note(session: Session) -> None:
    """Note every tensor that is averaged from here on, and the shapes of what is trained."""
    notes: dict[str, list[list[int]]] = {
        "averaged": [],
        "trained": [list(v.shape) for v in session.model.trainable_variables],
    }

    def noted(tensor: Any, *args: Any, **options: Any) -> Any:
        if options.get("op") == hvd.Average:
            notes["averaged"].append(list(tensor.shape))
            (NOTES / f"allreduces-{session.world.rank}.json").write_text(json.dumps(notes))
        return allreduce(tensor, *args, **options)

    hvd.allreduce = noted


if __name__ == "__main__":
    train_changed(note)
