"""A training in which rank 1's weights diverge after the third step, as on a node with faulty hardware."""

from __future__ import annotations

from typing import Any

from tests.ranks.programs.changed import before_each_step, train_changed
from training_job.session import Session


def part(session: Session) -> None:
    """Change one weight slightly, once."""
    weight = session.model.trainable_variables[0]

    def drift(_: Any) -> None:
        if (session.world.rank, session.position.step) == (1, 3):
            weight.assign(weight + 1e-3)

    before_each_step(session, drift)


if __name__ == "__main__":
    train_changed(part)
