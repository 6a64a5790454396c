"""Blob paths: ``dataset/version/shard``, as far as a pipeline asks for the dataset and the split.

Where the layout allows it, a shard lies in folders below its version.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from function_app.config.layouts import Layout
from function_app.config.pipelines import Pipeline
from function_app.domain.records import DatasetVersion
from shard_validation import COUNT_FILES
from shared.shard_names import VERSION_MEANING, VERSION_PATTERN, ShardName, ShardNameError

PATH_PATTERN = re.compile(r"([^/]+)/([^/]+)/(.+)", re.DOTALL)
NAMES = Layout()
"""The layout of pipelines that say nothing else."""


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
    pipeline = pipelines.get(match[1]) if match is not None else None
    if match is None or ("/" in match[3] and not (pipeline and pipeline.data.layout.has_any_names)):
        raise NotAShardError(f"{path[:200]!r} is not a shard's path: <dataset>/<version>/<shard>")
    dataset, version, name = match.groups()
    if pipeline is None:
        raise NotAShardError(without_pipeline(dataset, pipelines))
    data = pipeline.data
    shard = shard_of_version(version, name, splits=data.splits, pipeline=pipeline.pipeline, layout=data.layout)
    return ShardPlace(
        dataset_version=DatasetVersion(dataset=dataset, version=version), shard=shard, pipeline=pipeline
    )


def without_pipeline(dataset: str, datasets: Collection[str]) -> str:
    """Return why nothing looks at an upload to a dataset, and which datasets have a pipeline."""
    others = f"there are pipelines for {_listed(datasets)}" if datasets else "there is no pipeline at all"
    return f"dataset {dataset!r} has no pipeline; {others}"


def shard_of_version(
    version: str, name: str, *, splits: Collection[str] | None, pipeline: str, layout: Layout = NAMES
) -> ShardName:
    """Return the shard that a path within a version means. Raises NotAShardError, also for synthetic data.

    ``splits`` are those of the pipeline: empty for synthetic data, None where they are unknown.
    """
    if splits is not None and not splits:
        raise NotAShardError(f"pipeline {pipeline} trains on synthetic data and takes no shards")
    if not VERSION_PATTERN.fullmatch(version):
        raise NotAShardError(f"{version[:100]!r} is not a version: use {VERSION_MEANING}")
    try:
        shard = layout.shard(name, splits)
    except ShardNameError as error:
        raise NotAShardError(str(error)) from error
    if splits is not None and shard.split not in splits:
        raise NotAShardError(f"pipeline {pipeline} asks for splits {_listed(splits)}, not for {shard.split}")
    return shard


def counted_version(path: str, pipelines: Mapping[str, Pipeline]) -> tuple[Pipeline, DatasetVersion] | None:
    """Return the version whose stated record counts are at a path; None where the path is no such file."""
    found = _version_of(path, pipelines)
    return found[:2] if found is not None and found[2] in COUNT_FILES else None


def marked_version(path: str, pipelines: Mapping[str, Pipeline]) -> tuple[Pipeline, DatasetVersion] | None:
    """Return the version whose marker is at a path; None where the path is no marker."""
    found = _version_of(path, pipelines)
    return found[:2] if found is not None and found[0].data.layout.is_marker(found[2]) else None


def _version_of(path: str, pipelines: Mapping[str, Pipeline]) -> tuple[Pipeline, DatasetVersion, str] | None:
    match = PATH_PATTERN.fullmatch(path)
    pipeline = pipelines.get(match[1]) if match is not None else None
    if match is None or pipeline is None or pipeline.data.is_synthetic or not VERSION_PATTERN.fullmatch(match[2]):
        return None
    return pipeline, DatasetVersion(dataset=match[1], version=match[2]), match[3]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
