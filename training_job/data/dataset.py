"""The batches of one rank: its lanes' records, shuffled, decoded, joined into batches of one shape.

A batch is ``(images, labels, weights)``: float32 [B, height, width, channels] as decoded (0 to 255 for
images), int64 [B], float32 [B]. A record that only fills up the last batch has weight 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from shared.manifest import Manifest, ManifestShard
from training_job.data.decoding import decoder_for
from training_job.data.order import lane_seed, order_of_epoch
from training_job.data.records import lane_records
from training_job.rank_plan import Lane, SplitPlan, cut_lanes, lanes_of_rank

SHUFFLE_BUFFER_RECORDS = 4096


@dataclass(frozen=True, kw_only=True)
class RankData:
    """What one rank reads of one split, epoch after epoch."""

    manifest: Manifest
    folder: Path
    plan: SplitPlan
    rank: int
    image_feature: str
    label_feature: str

    def training_epoch(self, epoch: int, seed: int, skip_steps: int = 0) -> tf.data.Dataset:
        """Return the epoch's batches, shuffled: the same for the same seed and epoch, whatever the world size."""
        shards = order_of_epoch(self.manifest.split(self.plan.split), seed=seed, epoch=epoch)
        share = self.plan.batch.records_per_lane
        lanes = [
            self._lane(lane)
            .shuffle(SHUFFLE_BUFFER_RECORDS, seed=lane_seed(seed, epoch, number), reshuffle_each_iteration=False)
            .repeat(2)
            .take(self.plan.steps * share)
            .skip(skip_steps * share)
            for number, lane in self._own_lanes(shards)
        ]
        return self._batches(lanes)

    def evaluation(self) -> tf.data.Dataset:
        """Return the split's batches in the manifest's order, filled up with records of weight 0."""
        shards = self.manifest.split(self.plan.split)
        share = self.plan.batch.records_per_lane
        filler = self._filler(shards)
        lanes = [
            self._lane(lane).concatenate(filler).take(self.plan.steps * share) for _, lane in self._own_lanes(shards)
        ]
        return self._batches(lanes)

    def _own_lanes(self, shards: Sequence[ManifestShard]) -> list[tuple[int, Lane]]:
        batch = self.plan.batch
        cut = tuple(enumerate(cut_lanes(shards, batch.num_lanes)))
        share = batch.num_lanes // batch.world_size
        return list(cut[self.rank * share : (self.rank + 1) * share])

    def _lane(self, lane: Lane) -> tf.data.Dataset:
        return lane_records(self.folder, lane).map(lambda payload: (payload, 1.0))

    def _filler(self, shards: Sequence[ManifestShard]) -> tf.data.Dataset:
        first = cut_lanes(shards[:1], 1)[0]
        return lane_records(self.folder, first).take(1).map(lambda payload: (payload, 0.0)).repeat()

    def _batches(self, lanes: Sequence[tf.data.Dataset]) -> tf.data.Dataset:
        batch = self.plan.batch
        decode = decoder_for(self.manifest.features, image=self.image_feature, label=self.label_feature)
        joined = _take_in_turns(lanes, batch.records_per_lane)
        decoded = joined.map(lambda payload, weight: (*decode(payload), weight), num_parallel_calls=1)
        return decoded.batch(batch.per_process_batch_size, drop_remainder=True).prefetch(2)


def _take_in_turns(lanes: Sequence[tf.data.Dataset], share: int) -> tf.data.Dataset:
    """Return ``share`` records of each lane in turn."""
    if len(lanes) == 1:
        return lanes[0]
    turns = tf.data.Dataset.range(len(lanes)).flat_map(lambda lane: tf.data.Dataset.from_tensors(lane).repeat(share))
    return tf.data.Dataset.choose_from_datasets(list(lanes), turns.repeat())


__all__ = ["RankData", "lanes_of_rank"]
