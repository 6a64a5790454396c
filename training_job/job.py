"""The input of a training, read and checked before TensorFlow is loaded, so that mistakes are found early."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from shared.configuration import misfits
from shared.job_arguments import JobArguments
from shared.manifest import MAX_MANIFEST_BYTES, SYNTHETIC, Manifest, ManifestError, ManifestShard, fingerprint
from training_job.checkpoints.position import Position, batch_shape, resumed
from training_job.checkpoints.store import CheckpointStore
from training_job.errors import ConfigurationError, DataChangedError, DataError
from training_job.process_environment import launched_rank
from training_job.rank_plan import BatchShape, SplitPlan, plan_evaluation, plan_training


@dataclass(frozen=True, kw_only=True)
class Job:
    """The arguments, the manifest and the plans made from them."""

    arguments: JobArguments
    manifest: Manifest
    training: SplitPlan
    validation: SplitPlan
    checkpoints: CheckpointStore
    latest: Position | None
    """The position of the latest checkpoint; on other ranks than the root None until they have connected."""
    start: Position
    """The beginning, or the position of the latest checkpoint under this plan."""

    def resumed_from(self, latest: Position | None) -> Job:
        """Return the same job with another latest checkpoint. Raises PlanError or CheckpointError."""
        training = _training(self.arguments, self.manifest, self.training.batch.world_size, latest)
        start = resumed(latest, self.arguments, self.manifest.fingerprint, training)
        return replace(self, training=training, latest=latest, start=start)


def prepare(arguments: JobArguments, world_size: int) -> Job:
    """Read the manifest and the latest checkpoint's position, and plan.

    Only the root reads checkpoints: other nodes may see another state of the folder, and use the position that the
    root has read. Raises DataError, DataChangedError, ConfigurationError, PlanError or CheckpointError.
    """
    manifest = _read_manifest(Path(arguments.manifest))
    if arguments.synthetic_records:
        manifest = _synthetic(manifest, arguments)
    else:
        _check_shards(manifest, Path(arguments.data))
        if problems := misfits(arguments, manifest, world_size=world_size):
            raise ConfigurationError(f"{'; '.join(problems)}.")
    checkpoints = CheckpointStore(Path(arguments.checkpoints), keep=arguments.checkpoints_kept)
    latest = checkpoints.latest_position() if launched_rank() == 0 else None
    training = _training(arguments, manifest, world_size, latest)
    return Job(
        arguments=arguments,
        manifest=manifest,
        training=training,
        validation=_validation(arguments, manifest, world_size),
        checkpoints=checkpoints,
        latest=latest,
        start=resumed(latest, arguments, manifest.fingerprint, training),
    )


def _training(arguments: JobArguments, manifest: Manifest, world_size: int, latest: Position | None) -> SplitPlan:
    return plan_training(
        arguments.train_split,
        manifest.split(arguments.train_split),
        batch_shape(arguments, world_size, latest),
        arguments.remainder,
    )


def _validation(arguments: JobArguments, manifest: Manifest, world_size: int) -> SplitPlan:
    batch = BatchShape(
        world_size=world_size, per_process_batch_size=arguments.per_process_batch_size, num_lanes=world_size
    )
    return plan_evaluation(arguments.validation_split, manifest.split(arguments.validation_split), batch)


def _read_manifest(path: Path) -> Manifest:
    try:
        with path.open("rb") as file:
            return Manifest.from_json(file.read(MAX_MANIFEST_BYTES + 1))
    except OSError as error:
        raise DataError(f"Manifest {path} cannot be read: {error.strerror}.") from error
    except ManifestError as error:
        raise DataError(f"Manifest {path}: {error}.") from error


def _check_shards(manifest: Manifest, folder: Path) -> None:
    for shard in manifest.shards:
        path = folder / shard.name
        seen = path.stat().st_size if path.is_file() else None
        if seen != shard.size_bytes:
            found = "does not exist" if seen is None else f"has {seen} bytes"
            raise DataChangedError(
                f"Shard {path} {found}; the manifest lists it with {shard.size_bytes} bytes: it changed after the "
                f"dataset version was closed."
            )


def _synthetic(manifest: Manifest, arguments: JobArguments) -> Manifest:
    """Return a manifest with the requested number of random records, plus an eighth of that for evaluation.

    Under a manifest of real data the fingerprint changes, so that a gate does not accept results on random pixels.
    """
    sizes = {
        arguments.train_split: arguments.synthetic_records,
        arguments.validation_split: max(1, arguments.synthetic_records // 8),
    }
    shards = tuple(
        ManifestShard(
            split=split, index=0, num_shards=1, name=split, size_bytes=0, crc32c="0" * 8, num_records=num_records
        )
        for split, num_records in sorted(sizes.items())
    )
    return Manifest(
        dataset=manifest.dataset,
        version=manifest.version,
        generation=manifest.generation,
        fingerprint=manifest.fingerprint if manifest.data_format == SYNTHETIC else fingerprint(shards),
        data_format=manifest.data_format,
        features=manifest.features,
        shards=shards,
    )
