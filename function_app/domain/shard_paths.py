"""Blob paths: ``dataset/version/shard``, as far as a pipeline asks for the dataset and the split."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from function_app.config.pipelines import Pipeline
from function_app.domain.records import DatasetVersion
from shard_validation import COUNT_FILES
from shared.shard_names import VERSION_MEANING, VERSION_PATTERN, ShardName, ShardNameError, parse_shard_name

PATH_PATTERN = re.compile(r"([^/]+)/([^/]+)/([^/]+)")


@dataclass(frozen=True, kw_only=True)
class ShardPlace:
    """A position in a split of a dataset version, and the file for it."""

    dataset_version: DatasetVersion
    shard: ShardName
    pipeline: Pipeline

    @property
    def path(self) -> str:
        """Within the data container."""
        return f"{self.dataset_version}/{self.shard.name}"


class NotAShardError(ValueError):
    """The path is no shard of any pipeline; the message says why."""


def shard_place(path: str, pipelines: Mapping[str, Pipeline]) -> ShardPlace:
    """Return the shard that a path names. Raises NotAShardError."""
    match = PATH_PATTERN.fullmatch(path)
    if match is None:
        raise NotAShardError(f"{path[:200]!r} is not a shard's path: <dataset>/<version>/<shard>")
    dataset, version, name = match.groups()
    pipeline = pipelines.get(dataset)
    if pipeline is None:
        raise NotAShardError(without_pipeline(dataset, pipelines))
    shard = shard_of_version(version, name, splits=pipeline.data.splits, pipeline=pipeline.pipeline)
    return ShardPlace(
        dataset_version=DatasetVersion(dataset=dataset, version=version), shard=shard, pipeline=pipeline
    )


def without_pipeline(dataset: str, datasets: Iterable[str]) -> str:
    """Return why nothing looks at an upload to a dataset, and which datasets have a pipeline."""
    return f"dataset {dataset!r} has no pipeline; there are pipelines for {_listed(datasets)}"


def shard_of_version(version: str, name: str, *, splits: Collection[str] | None, pipeline: str) -> ShardName:
    """Return the shard that a file name means in a version. Raises NotAShardError, also for synthetic data.

    ``splits`` are those of the pipeline: empty for synthetic data, None where they are unknown.
    """
    if splits is not None and not splits:
        raise NotAShardError(f"pipeline {pipeline} trains on synthetic data and takes no shards")
    if not VERSION_PATTERN.fullmatch(version):
        raise NotAShardError(f"{version[:100]!r} is not a version: use {VERSION_MEANING}")
    try:
        shard = parse_shard_name(name)
    except ShardNameError as error:
        raise NotAShardError(str(error)) from error
    if splits is not None and shard.split not in splits:
        raise NotAShardError(f"pipeline {pipeline} asks for splits {_listed(splits)}, not for {shard.split}")
    return shard


def counted_version(path: str, pipelines: Mapping[str, Pipeline]) -> tuple[Pipeline, DatasetVersion] | None:
    """Return the version whose stated record counts are at a path; None where the path is no such file."""
    match = PATH_PATTERN.fullmatch(path)
    if match is None or match[3] not in COUNT_FILES or not VERSION_PATTERN.fullmatch(match[2]):
        return None
    pipeline = pipelines.get(match[1])
    if pipeline is None or pipeline.data.is_synthetic:
        return None
    return pipeline, DatasetVersion(dataset=match[1], version=match[2])


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
