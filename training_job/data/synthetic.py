"""Random pixels: shows what the machines can do when reading costs nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from training_job.data.dataset import PREFETCHED_BATCHES
from training_job.rank_plan import SplitPlan


@dataclass(frozen=True, kw_only=True)
class SyntheticData:
    """One batch, drawn once for each rank and used in every step."""

    plan: SplitPlan
    rank: int
    seed: int
    model_shape: tuple[int, ...]
    num_classes: int

    def training_epoch(self, epoch: int, skip_steps: int = 0) -> tf.data.Dataset:
        """Return the same batch for every step."""
        del epoch
        return self._batches(self.plan.steps - skip_steps, self.plan.batch.accumulation)

    def evaluation(self) -> tf.data.Dataset:
        """Return the same batch for every step."""
        return self._batches(self.plan.steps, 1)

    def _batches(self, steps: int, accumulation: int) -> tf.data.Dataset:
        generator = np.random.default_rng([self.seed, self.rank])
        size = self.plan.batch.per_process_batch_size
        leading = (accumulation, size) if accumulation > 1 else (size,)
        images = generator.uniform(0, 255, (*leading, *self.model_shape)).astype(np.float32)
        labels = generator.integers(0, self.num_classes, leading)
        batch = (images, labels, np.ones(leading, np.float32))
        return tf.data.Dataset.from_tensors(batch).repeat(steps).prefetch(PREFETCHED_BATCHES)
