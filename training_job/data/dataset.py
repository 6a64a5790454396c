"""The batches of one rank: its lanes' records, shuffled, decoded, joined into batches of one shape.

A batch is ``(images, labels, weights)``: float32 [B, height, width, channels] as decoded (0 to 255 for
images), int64 [B], float32 [B]. Records that pad the last batch have weight 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
import tensorflow as tf

from shared.manifest import ManifestShard
from shared.safe_text import one_line
from training_job.data.images import Augmentation, Decoder, fit
from training_job.data.misfits import RecordFacts
from training_job.errors import ConfigurationError, UnreadableDataError
from training_job.rank_plan import Lane, SplitPlan, cut_lanes, lane_seed, order_of_epoch

PREFETCHED_BATCHES = 2
_MAX_CAUSE_CHARS = 600

_GRAPH = re.compile(r"\[\[\{\{node.*?\}\}\]\]|\{\{[^{}]*\}\}|\[Op:\w+\](?: name: ?\S*)?")
"""The parts that TensorFlow adds to a message: nodes and functions of its graph, and the failed operation."""
_BUT_A_LABEL = ", but there is a label"
_WRONG_LABEL = re.compile(r"\[(num_classes: [^\]]*" + _BUT_A_LABEL + r")\]\s*\[*(-?\d+)")

T = TypeVar("T")


class RecordSource(Protocol):
    """Records of the manifest's shards, undecoded: cheap to shuffle, to skip and to hold."""

    def lane(self, lane: Lane, *, in_order: bool = False) -> tf.data.Dataset:
        """Return the lane's records, in the structure that `values` reads.

        Without ``in_order``, a source may choose another order, the same one each time.
        """
        ...

    def values(self, record: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the image feature's value, as stored, and the label, int64 []. Runs within a graph."""
        ...

    def facts(self, shard: str) -> Iterator[RecordFacts]:
        """Yield the facts about each record of a shard that messages need, in order.

        It is slow, for searches only. Raises DataError if the shard cannot be read.
        """
        ...


class RankData(Protocol):
    """One rank's batches of one split, epoch after epoch."""

    def training_epoch(self, epoch: int, skip_steps: int = 0) -> tf.data.Dataset:
        """Return an epoch's batches without those of the first steps; the plan states the number of steps."""
        ...

    def evaluation(self) -> tf.data.Dataset:
        """Return the split's batches, each record once."""
        ...


@dataclass(frozen=True, kw_only=True)
class LaneData:
    """Reads shards by lanes, so that a step trains on the same records with any number of ranks."""

    shards: tuple[ManifestShard, ...]
    plan: SplitPlan
    rank: int
    seed: int
    source: RecordSource
    decode: Decoder
    augment: Augmentation
    model_shape: tuple[int, ...]
    label_offset: int
    num_classes: int
    shuffle_buffer_records: int
    threads: int = 1
    """Threads that read and decode."""
    fixed_cut: bool = False
    """Whether a rank reads the same shards in all epochs, so that a local cache holds the shards that it reads."""

    def training_epoch(self, epoch: int, skip_steps: int = 0) -> tf.data.Dataset:
        """Return the epoch's batches, shuffled by the seed."""
        shards = self._cut_for(epoch)
        first = skip_steps * self.plan.batch.records_per_lane
        lanes = [self._training_lane(lane, lane_seed(self.seed, epoch, i), first) for i, lane in self._own(shards)]
        return self._batches(lanes, self._augmented)

    def evaluation(self) -> tf.data.Dataset:
        """Return the batches in the manifest's order, padded with records of weight 0; built at the first call."""
        return self._evaluation

    @cached_property
    def _evaluation(self) -> tf.data.Dataset:
        taken = self.plan.steps * self.plan.batch.records_per_lane
        filler = self.source.lane(cut_lanes(self.shards[:1], 1)[0]).take(1).repeat().map(_weighing(0.0))
        lanes = [
            self.source.lane(lane, in_order=True).map(_weighing(1.0)).concatenate(filler).take(taken)
            for _, lane in self._own(self.shards)
        ]
        return self._batches(lanes, self._as_fitted)

    def training_shards(self, epoch: int) -> list[str]:
        """Return the names of the shards that `training_epoch` reads, in its order."""
        return self._names(self._cut_for(epoch))

    def evaluation_shards(self) -> list[str]:
        """Return the names of the shards that `evaluation` reads, including that of the padding."""
        return list(dict.fromkeys([self.shards[0].name, *self._names(self.shards)]))

    def begun_shards(self, epoch: int | None) -> list[str]:
        """Return the names of shards whose first record this rank reads in an epoch; None stands for evaluation.

        Lanes do not overlap, so exactly one rank starts each shard of the split.
        """
        shards = self.shards if epoch is None else self._cut_for(epoch)
        return [part.shard for _, lane in self._own(shards) for part in lane if part.start == 0]

    def _cut_for(self, epoch: int) -> tuple[ManifestShard, ...]:
        return order_of_epoch(self.shards, seed=self.seed, epoch=0 if self.fixed_cut else epoch)

    def _names(self, shards: Sequence[ManifestShard]) -> list[str]:
        return list(dict.fromkeys(part.shard for _, lane in self._own(shards) for part in lane))

    def _own(self, shards: Sequence[ManifestShard]) -> list[tuple[int, Lane]]:
        """Return this rank's lanes with their numbers."""
        batch = self.plan.batch
        share = batch.num_lanes // batch.world_size
        numbered = enumerate(cut_lanes(shards, batch.num_lanes))
        return list(numbered)[self.rank * share : (self.rank + 1) * share]

    def _training_lane(self, lane: Lane, seed: int, first: int) -> tf.data.Dataset:
        """Return the lane's records from the ``first`` on, each with its seed."""
        # Records that an interrupted epoch has used are read again but not decoded.
        records = self.source.lane(lane).shuffle(
            self.shuffle_buffer_records, seed=seed, reshuffle_each_iteration=False
        )
        if self.plan.remainder == "pad":
            records = records.repeat(2)
        last = self.plan.steps * self.plan.batch.records_per_lane
        # Not Dataset.counter: TensorFlow keeps the function in it until the process ends, 50 KiB an epoch.
        seeds = tf.data.Dataset.range(first, last).map(lambda i: tf.stack([seed, tf.cast(i, tf.int32)]))
        return tf.data.Dataset.zip(records.take(last).skip(first), seeds)

    def _augmented(self, record: Any, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        value, label = self.source.values(record)
        return self.augment(self.decode(value), seed), label, tf.constant(1.0)

    def _as_fitted(self, record: Any, weight: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        value, label = self.source.values(record)
        return fit(self.decode(value), self.model_shape), label, weight

    def _batches(self, lanes: Sequence[tf.data.Dataset], decode: Any) -> tf.data.Dataset:
        batch = self.plan.batch
        records = _in_turns(lanes, batch.records_per_lane)
        decoded = records.map(decode, num_parallel_calls=self.threads, deterministic=True)
        batches = decoded.batch(batch.per_process_batch_size, drop_remainder=True).map(self._labelled)
        if batch.accumulation > 1:
            batches = batches.batch(batch.accumulation, drop_remainder=True)
        return batches.prefetch(PREFETCHED_BATCHES).with_options(_options(self.threads))

    def _labelled(self, images: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, ...]:
        labels -= self.label_offset
        wrong = tf.boolean_mask(labels, (labels < 0) | (labels >= self.num_classes))
        options = f"num_classes: {self.num_classes} and label_offset: {self.label_offset}"
        check = tf.debugging.Assert(
            tf.equal(tf.size(wrong), 0), [options + _BUT_A_LABEL, tf.reduce_max(wrong) + self.label_offset]
        )
        with tf.control_dependencies([check]):
            return images, tf.identity(labels), weights


def next_batch(batches: Iterator[T], rank: int) -> T:
    """Return the next batch. Raises UnreadableDataError if there is no batch, or it cannot be read.

    Raises ConfigurationError for a label that the options do not allow.
    """
    try:
        return next(batches)
    except StopIteration as error:
        raise UnreadableDataError(
            f"Rank {rank} has no more batches: a shard holds fewer records than the manifest says."
        ) from error
    except tf.errors.OpError as error:
        if wrong := _WRONG_LABEL.search(str(error.message)):
            raise ConfigurationError(f"{wrong[1]} {wrong[2]}.") from error
        raise UnreadableDataError(f"Rank {rank} cannot read its data: {_cause(error)}") from error


def _cause(error: tf.errors.OpError) -> str:
    """Return TensorFlow's message without the names of its graph's nodes and without Python's stack."""
    message = _GRAPH.sub("", str(error.message)).partition("Traceback (most recent call last)")[0]
    return one_line(" ".join(message.split()))[:_MAX_CAUSE_CHARS]


def _options(threads: int) -> tf.data.Options:
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1
    return options


def _weighing(weight: float) -> Any:
    return lambda *record: (record[0] if len(record) == 1 else record, weight)


def _in_turns(lanes: Sequence[tf.data.Dataset], share: int) -> tf.data.Dataset:
    """Return ``share`` records of each lane in turn."""
    if len(lanes) == 1:
        return lanes[0]
    turns = tf.data.Dataset.range(len(lanes)).flat_map(lambda lane: tf.data.Dataset.from_tensors(lane).repeat(share))
    return tf.data.Dataset.choose_from_datasets(list(lanes), turns.repeat())


@dataclass(frozen=True, kw_only=True)
class SyntheticData:
    """One batch of random pixels for each rank, used in every step, to measure machines without reading."""

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
