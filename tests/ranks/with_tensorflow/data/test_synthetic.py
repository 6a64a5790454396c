"""Random pixels in place of shards."""

from __future__ import annotations

import numpy as np

from training_job.data.synthetic import SyntheticData
from training_job.rank_plan import BatchShape, SplitPlan


def drawn(rank: int = 0, seed: int = 0, accumulation: int = 1) -> SyntheticData:
    batch = BatchShape(world_size=2, per_process_batch_size=4, num_lanes=2, accumulation=accumulation)
    plan = SplitPlan(
        split="train",
        num_records=40,
        num_shards=1,
        batch=batch,
        remainder="drop",
        steps=5,
        dropped_records=0,
        padded_records=0,
    )
    return SyntheticData(plan=plan, rank=rank, seed=seed, model_shape=(3, 2, 1), num_classes=7)


def test_an_epoch_has_as_many_batches_as_planned() -> None:
    """Fewer where some were taken before, and the same for an evaluation."""
    assert (5, 3, 5) == (
        len(list(drawn().training_epoch(0))),
        len(list(drawn().training_epoch(0, skip_steps=2))),
        len(list(drawn().evaluation())),
    )


def test_a_batch_looks_like_one_of_images() -> None:
    """Pixels of 0 to 255 in the model's shape, labels of the classes, every record with weight 1."""
    images, labels, weights = (part.numpy() for part in next(iter(drawn().training_epoch(0))))
    assert ((4, 3, 2, 1), (4,), [1.0] * 4) == (images.shape, labels.shape, weights.tolist())
    assert 0 <= images.min() < 100 < images.max() <= 255
    assert set(labels.tolist()) <= set(range(7))


def test_accumulated_batches_have_an_axis_of_their_own() -> None:
    """In training, not in evaluation."""
    data = drawn(accumulation=3)
    assert ((3, 4, 3, 2, 1), (4, 3, 2, 1)) == (
        next(iter(data.training_epoch(0)))[0].shape,
        next(iter(data.evaluation()))[0].shape,
    )


def test_ranks_and_seeds_have_pixels_of_their_own() -> None:
    """And the same rank with the same seed the same ones."""
    first, again, other_rank, other_seed = (
        next(iter(data.training_epoch(0)))[0].numpy() for data in (drawn(), drawn(), drawn(rank=1), drawn(seed=1))
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other_rank)
    assert not np.array_equal(first, other_seed)
