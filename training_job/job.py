"""What a training is given, read and judged before TensorFlow is loaded: a mistake costs no time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shared.job_arguments import JobArguments
from shared.manifest import MAX_MANIFEST_BYTES, Manifest, ManifestError
from training_job.errors import DataError
from training_job.rank_plan import BatchShape, SplitPlan, plan_evaluation, plan_training


@dataclass(frozen=True, kw_only=True)
class Job:
    """The arguments, the manifest and the plans made from them."""

    arguments: JobArguments
    manifest: Manifest
    training: SplitPlan
    validation: SplitPlan


def prepare(arguments: JobArguments, world_size: int) -> Job:
    """Read the manifest and plan. Raises DataError or PlanError."""
    manifest = _read_manifest(Path(arguments.manifest))
    _check_shards(manifest, Path(arguments.data))
    batch = BatchShape(
        world_size=world_size, per_process_batch_size=arguments.per_process_batch_size, num_lanes=world_size
    )
    return Job(
        arguments=arguments,
        manifest=manifest,
        training=plan_training(arguments.train_split, manifest.split(arguments.train_split), batch),
        validation=plan_evaluation(arguments.validation_split, manifest.split(arguments.validation_split), batch),
    )


def _read_manifest(path: Path) -> Manifest:
    try:
        with path.open("rb") as file:
            return Manifest.from_json(file.read(MAX_MANIFEST_BYTES + 1))
    except OSError as error:
        raise DataError(f"Manifest {path} should be readable, but: {error.strerror}.") from error
    except ManifestError as error:
        raise DataError(f"Manifest {path}: {error}.") from error


def _check_shards(manifest: Manifest, folder: Path) -> None:
    for shard in manifest.shards:
        path = folder / shard.name
        seen = path.stat().st_size if path.is_file() else None
        if seen != shard.size_bytes:
            raise DataError(
                f"Shard {path} should have {shard.size_bytes} bytes as the manifest says, "
                + (f"has {seen}." if seen is not None else "is not there.")
            )
