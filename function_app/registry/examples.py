"""The results of each validation example of a run, and whether those of two runs can be paired.

The file is written by a training, which may be a user's script: sizes, columns and values are bounded and checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from function_app.domain.errors import DocumentTooLargeError
from function_app.domain.jobs import report_path, spec_from_json
from function_app.domain.records import RunRecord, manifest_path
from function_app.ingest.stored_shards import read_manifest
from function_app.ports import DocumentStore
from function_app.registry.paired import Interval, Scored, interval_of_auc, interval_of_mean
from shared.errors import LandfallError
from shared.manifest import ManifestError
from shared.training_report import (
    EXAMPLES_NAME,
    LABEL,
    MAX_EXAMPLES,
    MAX_EXAMPLES_BYTES,
    NUM_EXAMPLES_KEY,
    RECORD,
    SCORE,
    SHARD,
)

Values = np.ndarray[Any, Any]

AUC = "auc"
MAX_COLUMNS = 50
MAX_TOTAL_DIGITS = 15
MAX_DATA_BYTES = 512 << 20
"""Maximum size of a file's columns, uncompressed but still encoded."""
MAX_NUMBERS_BYTES = 256 << 20
"""Maximum size of the columns in memory, at 8 bytes for each number."""
TOLERANCE = 1e-3
"""Relative difference between a metric of the report and what the examples make up; areas come from histograms."""
VALIDATION = "val_"


class ExamplesError(LandfallError):
    """The results of each example are missing, cannot be read or do not fit; the message says which and why."""


@dataclass(frozen=True, kw_only=True)
class ExampleResults:
    """The results of one run, sorted by shard and record."""

    shards: tuple[str, ...]
    """Names of the shards that rows refer to, sorted."""
    keys: Values
    """Place of the shard's name, and number of the record, int64 [N, 2]."""
    columns: Mapping[str, Values]
    """Metric without ``val_`` → the value of each example, float64 [N]; also ``label`` and ``score``."""
    num_examples: int
    """How many were evaluated, where the rows are a sample of them."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the report that these results make up."""
        own = [name for name in self.columns if name not in (LABEL, SCORE)]
        has_area = LABEL in self.columns and SCORE in self.columns
        return tuple(VALIDATION + name for name in (*own, *([AUC] if has_area else [])))

    def interval(self, metric: str, seed: int, other: ExampleResults | None = None) -> Interval:
        """Return a metric with its interval, or by how much it exceeds another run's on the same examples.

        Raises ExamplesError for a metric that the results do not make up.
        """
        for results in filter(None, (self, other)):
            if metric not in results.metrics:
                known = ", ".join(results.metrics) or "none"
                raise ExamplesError(f"there is no column for {metric} in the results of each example; for {known}")
        name = metric.removeprefix(VALIDATION)
        if name == AUC:
            return interval_of_auc(self.scored, None if other is None else other.scored, seed)
        values = self.columns[name]
        return interval_of_mean(values if other is None else values - other.columns[name], seed)

    @property
    def scored(self) -> Scored:
        """Labels and scores."""
        return Scored(labels=self.columns[LABEL], scores=self.columns[SCORE])

    def is_share(self, metric: str) -> bool:
        """Whether a metric is a share of the examples, or an area: its differences are points of a hundred."""
        name = metric.removeprefix(VALIDATION)
        return name == AUC or bool(np.isin(self.columns[name], (0, 1)).all())


def read_examples(run: RunRecord, run_outputs: DocumentStore) -> ExampleResults:
    """Return the results that a run has left beside its report. Raises ExamplesError."""
    path = examples_path(run)
    try:
        content = run_outputs.read(path, max_bytes=MAX_EXAMPLES_BYTES)
    except DocumentTooLargeError as error:
        raise ExamplesError(str(error)) from error
    if content is None:
        raise ExamplesError(f"run {run.run_id} has no results of each example: {path} does not exist")
    try:
        return parse_examples(content)
    except ExamplesError as error:
        raise ExamplesError(f"{path}: {error}") from error


def examples_path(run: RunRecord) -> str:
    """Return the path of a run's file in the runs container."""
    return report_path(spec_from_json(run.spec)).rpartition("/")[0] + f"/{EXAMPLES_NAME}"


def parse_examples(content: bytes) -> ExampleResults:
    """Read a file. Raises ExamplesError."""
    try:
        file = pq.ParquetFile(BytesIO(content), read_dictionary=[SHARD])
        _check_shape(file)
        shards, keys = _keys(file.read(columns=[SHARD, RECORD]))
        order = np.lexsort((keys[:, 1], keys[:, 0]))
        names = [name for name in file.schema_arrow.names if name not in (SHARD, RECORD)]
        columns = {name: _numbers(file, name)[order] for name in names}
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError, MemoryError) as error:
        raise ExamplesError(f"it cannot be read: {error}") from error
    keys = keys[order]
    if len(keys) > 1 and (keys[1:] == keys[:-1]).all(1).any():
        raise ExamplesError(f"the same {SHARD} and {RECORD} are in two rows")
    stated = (file.schema_arrow.metadata or {}).get(NUM_EXAMPLES_KEY, b"")
    total = int(stated) if stated.isdigit() and len(stated) <= MAX_TOTAL_DIGITS else len(keys)
    return ExampleResults(shards=shards, keys=keys, columns=columns, num_examples=max(total, len(keys)))


def _check_shape(file: pq.ParquetFile) -> None:
    """Raise ExamplesError for columns that are too large or of other types, before any of them is decoded."""
    metadata = file.metadata
    if not 0 < metadata.num_rows <= MAX_EXAMPLES:
        raise ExamplesError(f"expected 1 to {MAX_EXAMPLES} rows, got {metadata.num_rows}")
    if metadata.num_columns > MAX_COLUMNS:
        raise ExamplesError(f"expected at most {MAX_COLUMNS} columns, got {metadata.num_columns}")
    size = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    if size > MAX_DATA_BYTES:
        raise ExamplesError(f"expected at most {MAX_DATA_BYTES} bytes of data, got {size}")
    size = metadata.num_rows * metadata.num_columns * 8
    if size > MAX_NUMBERS_BYTES:
        raise ExamplesError(f"expected at most {MAX_NUMBERS_BYTES} bytes at 8 per number, got {size}")
    missing = {SHARD, RECORD} - set(file.schema_arrow.names)
    if missing:
        raise ExamplesError(f"expected the columns {SHARD} and {RECORD}; {' and '.join(sorted(missing))} is missing")
    for column in file.schema_arrow:
        _check_type(column.name, column.type)


def _check_type(name: str, kind: pa.DataType) -> None:
    """Raise ExamplesError for a column of another type. Shards are read as a dictionary, so that each is one text."""
    if name == SHARD:
        if not pa.types.is_dictionary(kind):
            raise ExamplesError(f"{SHARD} must be a text: the shard's name in the manifest")
    elif name == RECORD:
        if not pa.types.is_integer(kind):
            raise ExamplesError(f"{RECORD} must be a whole number")
    elif not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        raise ExamplesError(f"column {name} must have numbers, not {kind}")


def _keys(table: pa.Table) -> tuple[tuple[str, ...], Values]:
    named = table[SHARD].combine_chunks().unify_dictionaries() if table[SHARD].num_chunks > 1 else table[SHARD]
    encoded = named.combine_chunks()
    encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
    if encoded.null_count or table[RECORD].null_count:
        raise ExamplesError(f"{SHARD} and {RECORD} must not be empty")
    names = encoded.dictionary.to_pylist()
    if not all(isinstance(name, str) for name in names):
        raise ExamplesError(f"{SHARD} must be a text: the shard's name in the manifest")
    shards = tuple(sorted(set(names)))
    places = {name: place for place, name in enumerate(shards)}
    translated = np.array([places[name] for name in names], np.int64)
    return shards, np.column_stack([translated[encoded.indices.to_numpy()], table[RECORD].to_numpy()])


def _numbers(file: pq.ParquetFile, name: str) -> Values:
    values: Values = file.read(columns=[name])[name].to_numpy().astype(np.float64)
    if not np.isfinite(values).all():
        raise ExamplesError(f"column {name} must have a finite number in each row")
    return values


def check_agrees(results: ExampleResults, metric: str, stated: float) -> None:
    """Raise ExamplesError if results of all examples do not make up the metric that the report states."""
    if len(results.keys) < results.num_examples:
        return  # a sample agrees only approximately
    found = results.interval(metric, 0).value if metric != VALIDATION + AUC else stated
    if abs(found - stated) > TOLERANCE * max(1.0, abs(stated)):
        raise ExamplesError(
            f"the results of each example give {metric} {found:.6g}, but the report says {stated:.6g}"
        )


def check_same_examples(run: RunRecord, own: ExampleResults, other_run: RunRecord, other: ExampleResults) -> None:
    """Raise ExamplesError if two runs were not evaluated on the same records of shards of the same names."""
    if own.shards != other.shards or not np.array_equal(own.keys, other.keys):
        raise ExamplesError(
            f"evaluated on different examples: {len(own.keys)} in {len(own.shards)} shards by {run.run_id}, "
            f"{len(other.keys)} in {len(other.shards)} shards by {other_run.run_id}"
        )


def check_same_content(run: RunRecord, other: RunRecord, shards: tuple[str, ...], documents: DocumentStore) -> None:
    """Raise ExamplesError if shards of the same names have another content: the manifests have their CRC32C."""
    if run.fingerprint == other.fingerprint:
        return
    contents = [_contents(one, documents) for one in (run, other)]
    for name in shards:
        stated = [content.get(name) for content in contents]
        if None in stated:
            raise ExamplesError(f"{name}, the shard of an example, is not in the manifests of both runs")
        if stated[0] != stated[1]:
            raise ExamplesError(f"the validation data differ: {name} has other content in {other.dataset_version}")


def _contents(run: RunRecord, documents: DocumentStore) -> dict[str, tuple[int, str]]:
    path = manifest_path(run.dataset_version, run.generation, run.fingerprint)
    try:
        manifest = read_manifest(path, documents)
    except ManifestError as error:
        raise ExamplesError(f"the manifest of {run.dataset_version} cannot be read: {error}") from error
    return {shard.name: (shard.size_bytes, shard.crc32c) for shard in manifest.shards}
