"""Where a training stands: all that it needs besides its variables to go on as if it had never stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from training_job.decisions import Standing


@dataclass(frozen=True, kw_only=True)
class Position:
    """A moment between two steps."""

    epoch: int = 0
    """Epochs finished."""
    step_of_epoch: int = 0
    """Optimizer updates within the epoch that is under way; 0 between epochs."""
    step: int = 0
    """Optimizer updates in all."""
    sums: tuple[float, ...] = ()
    """The running epoch's metric sums over all ranks so far; empty at its start."""
    standing: Standing = field(default_factory=Standing)
    """What early stopping, plateaus and the best epoch are decided on."""
    epochs: tuple[Mapping[str, float], ...] = ()
    """The finished epochs' metrics, for the report."""
    seed: int = 0
    fingerprint: str = ""
    """Of what was trained on; another data set is not resumed from."""
    num_lanes: int = 1
    global_batch_size: int = 1

    def to_members(self) -> dict[str, Any]:
        """Return JSON-ready members."""
        return asdict(self)

    @classmethod
    def from_members(cls, members: Mapping[str, Any]) -> Position:
        """Read what `to_members` gave, after a round through JSON. Raises KeyError, TypeError or ValueError."""
        return cls(
            **{
                **members,
                "sums": tuple(members["sums"]),
                "epochs": tuple(members["epochs"]),
                "standing": Standing(**members["standing"]),
            }
        )
