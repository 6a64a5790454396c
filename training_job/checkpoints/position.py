"""The position of a training, and how an attempt resumes from the position of an earlier one.

With the same world size it continues exactly: the same records in the same order, the same random numbers, the
same state. With another world size but the same global batch, and a number of lanes that it divides, the steps are
those of the first attempt as well, but sums over a batch are added in another order, ranks draw other dropout masks,
and batch norm sees batches of another size. With another global batch, or lanes that cannot be kept, the epoch
continues after the same part of it, rounded down to whole steps, in another order: some of its records are used
twice, and some not at all. Later epochs use each record as often as any epoch does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from shared.job_arguments import JobArguments
from training_job.errors import CheckpointError
from training_job.rank_plan import BatchShape, SplitPlan
from training_job.reporting.metrics import layout_for
from training_job.schedule import Standing


@dataclass(frozen=True, kw_only=True)
class Position:
    """A position between two steps."""

    epoch: int = 0
    """Epochs finished."""
    step_of_epoch: int = 0
    """Optimizer updates within the running epoch; 0 between epochs."""
    step: int = 0
    """Optimizer updates in all."""
    sums: tuple[float, ...] = ()
    """The running epoch's metric sums over all ranks so far; empty at its start."""
    standing: Standing = field(default_factory=Standing)
    """The state of early stopping, plateaus and the best epoch."""
    epochs: tuple[Mapping[str, float], ...] = ()
    """The finished epochs' metrics, for the report."""
    seed: int = 0
    fingerprint: str = ""
    """Fingerprint of the data; a training on other data cannot be resumed."""
    num_lanes: int = 1
    global_batch_size: int = 1

    def to_members(self) -> dict[str, Any]:
        """Return JSON-ready members."""
        return asdict(self)

    @classmethod
    def from_members(cls, members: Mapping[str, Any]) -> Position:
        """Read the output of `to_members`, also after JSON. Raises KeyError, TypeError or ValueError."""
        return cls(
            **{
                **members,
                "sums": tuple(members["sums"]),
                "epochs": tuple(members["epochs"]),
                "standing": Standing(**members["standing"]),
            }
        )


def batch_shape(arguments: JobArguments, world_size: int, latest: Position | None) -> BatchShape:
    """Return the shape of the global batch, with the lanes of the previous attempt if they can be kept."""
    fresh = BatchShape(
        world_size=world_size,
        per_process_batch_size=arguments.per_process_batch_size,
        num_lanes=arguments.num_lanes or world_size,
        accumulation=arguments.gradient_accumulation,
    )
    kept = (
        latest is not None
        and not arguments.num_lanes
        and latest.global_batch_size == fresh.global_batch_size
        and latest.num_lanes % world_size == 0
    )
    return replace(fresh, num_lanes=latest.num_lanes) if latest and kept else fresh


def resumed(latest: Position | None, arguments: JobArguments, fingerprint: str, plan: SplitPlan) -> Position:
    """Return where to start under this plan. Raises CheckpointError if the checkpoint is from another training."""
    batch = plan.batch
    if latest is None:
        return Position(
            seed=arguments.seed,
            fingerprint=fingerprint,
            num_lanes=batch.num_lanes,
            global_batch_size=batch.global_batch_size,
        )
    _check_same(latest, arguments, fingerprint)
    return replace(
        latest,
        step_of_epoch=min(latest.step_of_epoch * latest.global_batch_size // batch.global_batch_size, plan.steps),
        num_lanes=batch.num_lanes,
        global_batch_size=batch.global_batch_size,
    )


def _check_same(latest: Position, arguments: JobArguments, fingerprint: str) -> None:
    numbers = layout_for(arguments).size
    for what, expected, seen in (
        ("data (fingerprint)", fingerprint, latest.fingerprint),
        ("order (seed)", arguments.seed, latest.seed),
        # The sums of a running epoch cannot continue in other buckets; only their number shows that these changed.
        ("metrics (numbers in the running epoch's sums)", numbers, len(latest.sums) or numbers),
    ):
        if expected != seen:
            raise CheckpointError(
                f"The checkpoint in {arguments.checkpoints} belongs to other {what}: expected {expected}, "
                f"got {seen}. Use another checkpoint folder, or empty this one to start from the beginning."
            )
