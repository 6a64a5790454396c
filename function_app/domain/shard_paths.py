"""Blob paths, ``dataset/version/shard``, for the datasets and splits of pipelines.

Shards may be in folders below their version if the layout allows it.
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
"""The default layout."""


@dataclass(frozen=True, kw_only=True)
class ShardPlace:
    """A position in a split of a dataset version, and its file."""

    dataset_version: DatasetVersion
    shard: ShardName
    pipeline: Pipeline

    @property
    def path(self) -> str:
        """Path within the data container."""
        return f"{self.dataset_version}/{self.shard.name}"


class NotAShardError(ValueError):
    """The path is not a shard of any pipeline; the message says why."""


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
    """Return why an upload to a dataset is ignored, with the datasets that have a pipeline."""
    others = f"there are pipelines for {_listed(datasets)}" if datasets else "there is no pipeline at all"
    return f"dataset {dataset!r} has no pipeline; {others}"


def shard_of_version(
    version: str, name: str, *, splits: Collection[str] | None, pipeline: str, layout: Layout = NAMES
) -> ShardName:
    """Return the shard that a path within a version names. Raises NotAShardError, also for synthetic data.

    ``splits`` are the pipeline's splits: empty for synthetic data, None if unknown.
    """
    if splits is not None and not splits:
        raise NotAShardError(f"pipeline {pipeline} trains on synthetic data and accepts no shards")
    if not VERSION_PATTERN.fullmatch(version):
        raise NotAShardError(f"{version[:100]!r} is not a version: use {VERSION_MEANING}")
    try:
        shard = layout.shard(name, splits)
    except ShardNameError as error:
        raise NotAShardError(str(error)) from error
    if splits is not None and shard.split not in splits:
        raise NotAShardError(f"pipeline {pipeline} has splits {_listed(splits)}, not {shard.split}")
    return shard


def counted_version(path: str, pipelines: Mapping[str, Pipeline]) -> tuple[Pipeline, DatasetVersion] | None:
    """Return the version whose record counts are stated in the file at a path; None if it is another file."""
    found = _version_of(path, pipelines)
    return found[:2] if found is not None and found[2] in COUNT_FILES else None


def marked_version(path: str, pipelines: Mapping[str, Pipeline]) -> tuple[Pipeline, DatasetVersion] | None:
    """Return the version whose marker is at a path; None if it is not a marker."""
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
