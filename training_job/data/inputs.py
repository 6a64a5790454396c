"""The data of a job for one rank: source, shapes and augmentation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shared.manifest import FeatureSpec, ManifestShard
from training_job.data.content_check import ContentCheck
from training_job.data.damage import check_shard
from training_job.data.dataset import LaneData, RankData, RecordSource, SyntheticData
from training_job.data.images import decoder_for, feature, image_shapes, training_augmentation
from training_job.data.misfits import find_misfit
from training_job.data.shard_cache import ShardCache
from training_job.data.tfrecord import TfrecordSource
from training_job.job import Job
from training_job.rank_plan import SplitPlan


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The data that one rank trains on and evaluates."""

    model_shape: tuple[int, ...]
    """Height, width and channels of one image."""
    training: RankData
    validation: RankData
    check: ContentCheck | None
    """Compares the shards that the attempt reads first with the manifest; None for synthetic data."""
    suspects: Callable[[int], list[tuple[ManifestShard, Path]]]
    """Maps an epoch to the shards that this rank reads in it, evaluation included, to search them for damage.
    """
    misfit: Callable[[int], str | None]
    """Maps an epoch to a sentence about the option that does not fit a record of these shards; None if all fit."""


def open_inputs(job: Job, rank: int, threads: int) -> Inputs:
    """Open the job's data for one rank, and start to check its content. Raises DataError."""
    shape = image_shapes(_image(job), job.arguments).model
    if job.arguments.synthetic_records:
        return Inputs(
            model_shape=shape,
            training=_synthetic(job, job.training, rank, shape),
            validation=_synthetic(job, job.validation, rank, shape),
            check=None,
            suspects=lambda _: [],
            misfit=lambda _: None,
        )
    cache = _cache(job)
    path_of = cache.path_of if cache else lambda name: Path(job.arguments.data) / name
    source = _source(job, path_of)
    training = _lanes(job, job.training, rank, source, threads)
    validation = _lanes(job, job.validation, rank, source, threads)

    def read_in(epoch: int) -> list[str]:
        return [*training.training_shards(epoch), *validation.evaluation_shards()]

    by_name = {shard.name: shard for shard in job.manifest.shards}
    # With a cache, a rank copies every shard that it reads. Without one, a shard is checked by one of its ranks.
    first = read_in(job.start.epoch) if cache else _checked_by_rank(training, validation, job.start.epoch)
    return Inputs(
        model_shape=shape,
        training=training,
        validation=validation,
        check=ContentCheck(
            [by_name[name] for name in first],
            cache.copy if cache else lambda shard: check_shard(shard, path_of(shard.name), job.manifest.data_format),
        ),
        suspects=lambda epoch: [(by_name[name], path_of(name)) for name in read_in(epoch)],
        misfit=lambda epoch: find_misfit(
            [by_name[name] for name in read_in(epoch)], source.facts, job.arguments, Path(job.arguments.data)
        ),
    )


def _checked_by_rank(training: LaneData, validation: LaneData, epoch: int) -> list[str]:
    """Return this rank's part of the shards that all ranks read in an epoch; the parts do not overlap."""
    return list(dict.fromkeys([*training.begun_shards(epoch), *validation.begun_shards(None)]))


def _image(job: Job) -> FeatureSpec:
    if job.arguments.synthetic_records:
        return FeatureSpec(name="synthetic", kind="float", shape=(None, None, None))
    return feature(job.manifest.features, job.arguments.image_feature)


def _cache(job: Job) -> ShardCache | None:
    if not job.arguments.cache_folder:
        return None
    return ShardCache(Path(job.arguments.data), Path(job.arguments.cache_folder), job.manifest.shards)


def _source(job: Job, path_of: Callable[[str], Path]) -> RecordSource:
    image, label = _image(job), feature(job.manifest.features, job.arguments.label_feature)
    if job.manifest.data_format == "parquet":
        # Imported here because pyarrow takes a quarter of a second, and most datasets are TFRecord.
        from training_job.data.parquet import ParquetSource

        return ParquetSource(path_of=path_of, image=image, label=label)
    return TfrecordSource(path_of=path_of, image=image, label=label)


def _lanes(job: Job, plan: SplitPlan, rank: int, source: RecordSource, threads: int) -> LaneData:
    options = job.arguments
    shapes = image_shapes(_image(job), options)
    return LaneData(
        shards=job.manifest.split(plan.split),
        plan=plan,
        rank=rank,
        seed=options.seed,
        source=source,
        decode=decoder_for(_image(job), shapes),
        augment=training_augmentation(options, shapes.model),
        model_shape=shapes.model,
        label_offset=options.label_offset,
        num_classes=options.num_classes,
        shuffle_buffer_records=options.shuffle_buffer_records,
        threads=threads,
        fixed_cut=bool(options.cache_folder),
    )


def _synthetic(job: Job, plan: SplitPlan, rank: int, shape: tuple[int, ...]) -> SyntheticData:
    return SyntheticData(
        plan=plan, rank=rank, seed=job.arguments.seed, model_shape=shape, num_classes=job.arguments.num_classes
    )
