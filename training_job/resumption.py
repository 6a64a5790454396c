"""How an attempt goes on where another one stopped.

With the same world size, exactly: the same records in the same order, the same random numbers, the same
state. With another world size but the same global batch, and a number of lanes that it divides, the steps
are those of the first attempt as well, but sums over a batch are added in another order, ranks draw other
dropout masks, and batch norm sees batches of another size. With another global batch, or lanes that cannot be
kept, the epoch goes on after the same part of it, rounded down to whole steps, in another order: some of its
records are seen twice, and some not at all. The epochs after it show each record as often as any epoch does.
"""

from __future__ import annotations

from dataclasses import replace

from shared.job_arguments import JobArguments
from training_job.checkpoints.position import Position
from training_job.errors import CheckpointError
from training_job.metrics import layout_for
from training_job.rank_plan import BatchShape, SplitPlan


def batch_shape(arguments: JobArguments, world_size: int, latest: Position | None) -> BatchShape:
    """Return the global batch's shape, with the lanes of the attempt before where they can be kept."""
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
    """Return where to start under this plan. Raises CheckpointError where the checkpoint is of another training."""
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
        # An epoch's sums do not go on in other buckets, and say nothing of which these were but their number.
        ("metrics (numbers in the running epoch's sums)", numbers, len(latest.sums) or numbers),
    ):
        if expected != seen:
            raise CheckpointError(
                f"The checkpoint in {arguments.checkpoints} should be of the {what} {expected}, it is of {seen}. "
                f"Use another checkpoint folder, or remove what is in it to start anew."
            )
