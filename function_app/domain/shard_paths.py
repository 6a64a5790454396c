"""Blob paths: ``dataset/version/shard``, as far as a pipeline asks for the dataset and the split."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from function_app.config.pipelines import Pipeline
from function_app.domain.records import DatasetVersion
from shard_validation import COUNT_FILES
from shared.shard_names import ShardName, ShardNameError, parse_shard_name

PATH_PATTERN = re.compile(r"([^/]+)/([^/]+)/([^/]+)")
VERSION_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


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
        raise NotAShardError(f"dataset {dataset!r} has no pipeline; there are pipelines for {_listed(pipelines)}")
    if pipeline.data.is_synthetic:
        raise NotAShardError(f"pipeline {pipeline.pipeline} trains on synthetic data and takes no shards")
    if not VERSION_PATTERN.fullmatch(version):
        raise NotAShardError(f"{version[:100]!r} is not a version: use 1 to 64 letters, digits, . - and _")
    try:
        shard = parse_shard_name(name)
    except ShardNameError as error:
        raise NotAShardError(str(error)) from error
    if shard.split not in pipeline.data.splits:
        raise NotAShardError(f"pipeline {pipeline.pipeline} asks for splits {_listed(pipeline.data.splits)}, "
                             f"not for {shard.split}")  # fmt: skip
    return ShardPlace(
        dataset_version=DatasetVersion(dataset=dataset, version=version), shard=shard, pipeline=pipeline
    )


def counted_version(path: str, pipelines: Mapping[str, Pipeline]) -> tuple[Pipeline, DatasetVersion] | None:
    """Return the version whose stated record counts are at a path; None where the path is no such file."""
    match = PATH_PATTERN.fullmatch(path)
    if match is None or match[3] not in COUNT_FILES or not VERSION_PATTERN.fullmatch(match[2]):
        return None
    pipeline = pipelines.get(match[1])
    if pipeline is None or pipeline.data.is_synthetic:
        return None
    return pipeline, DatasetVersion(dataset=match[1], version=match[2])


def _listed(names: Mapping[str, object] | tuple[str, ...]) -> str:
    return ", ".join(sorted(names)) or "none"
