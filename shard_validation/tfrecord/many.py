"""Check many examples at once: sound values are recognised together, the others one by one.

`features.compile_values_check` defines which values are sound, and the messages about the others. The checks here
only decide whether it would find no fault in any of these examples; if so, they count the values as it would.
Examples are counted in order, because the content of a full histogram depends on the order.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from heapq import merge
from operator import itemgetter
from typing import Any

import numpy as np

from shard_validation.features import (
    ITEM_FORMATS,
    PayloadCheck,
    as_stored,
    compile_values_check,
    fits_shape,
    raw_sizes,
)
from shard_validation.reasons import Fault
from shard_validation.requirements import DataRequirements
from shard_validation.tfrecord.layout import MIN_TOGETHER, Payload
from shard_validation.tfrecord.message import MIN_SCANNED_BYTES
from shard_validation.tfrecord.patterns import Patterns
from shard_validation.validate import MAX_DISTINCT, FeatureStatistics, ShardStatistics
from shared.manifest import FeatureSpec
from shared.record_framing import FRAME_OVERHEAD_BYTES, HEADER_BYTES, TRAILER_BYTES


class ManyExamples:
    """Checks examples of one shard."""

    def __init__(self, requirements: DataRequirements, statistics: ShardStatistics, check: PayloadCheck) -> None:
        """Take the check of one example, for those without a pattern."""
        self._check = check
        self._patterns = Patterns(requirements.features)
        self._columns = [_Column(spec, requirements, statistics.feature(spec.name)) for spec in requirements.features]

    def faults(self, content: Payload, sizes: array[int], index: int) -> Iterator[tuple[int, int, Fault]]:
        """Yield faults with index and begin of their records, in order, and count sound values.

        The first of the records, which have payloads of these sizes, begins at the first byte, and has this index.
        """
        stops = np.cumsum(np.frombuffer(sizes, np.int64) + FRAME_OVERHEAD_BYTES) - TRAILER_BYTES
        starts = stops - sizes
        for row, fault in self._faults_by_row(content, starts, stops, index):
            yield index + row, int(starts[row]) - HEADER_BYTES, fault

    def _faults_by_row(self, content: Payload, starts: Any, stops: Any, index: int) -> Iterator[tuple[int, Fault]]:
        columns = self._patterns.read(content, starts, stops)
        columns.are_read &= stops - starts <= MIN_SCANNED_BYTES
        for begin, end in _runs(columns.are_read):
            if columns.are_read[begin] and end - begin >= MIN_TOGETHER:
                found = []
                for place, values in sorted(columns.values.items()):
                    rows = begin + np.flatnonzero(columns.are_present[place][begin:end])
                    found.append(self._columns[place].faults(content, values[rows], rows, index))
                yield from merge(*found, key=itemgetter(0))  # one by one: all of them might not fit into memory
                continue
            for row in range(begin, end):
                for fault in self._check(content[starts[row] : stops[row]], index + row) or ():
                    yield row, fault


def _runs(are_read: Any) -> Iterator[tuple[int, int]]:
    """Yield begin and end of consecutive rows that are all read, or all not."""
    changes = np.flatnonzero(are_read[1:] != are_read[:-1]) + 1
    begin = 0
    for end in [*changes.tolist(), len(are_read)]:
        yield begin, end
        begin = end


class _Column:
    """Checks the values of one feature."""

    def __init__(self, spec: FeatureSpec, requirements: DataRequirements, statistics: FeatureStatistics) -> None:
        self._spec = as_stored(spec)
        self._statistics = statistics
        self._check = compile_values_check(spec, requirements, statistics)
        self._size_fits = raw_sizes(spec)[0] if spec.encoding == "raw" else None
        has_range = spec.minimum is not None or spec.maximum is not None
        has_items = spec.encoding == "raw" and (has_range or ITEM_FORMATS[spec.dtype or "uint8"] == "f")
        self._is_size_enough = spec.encoding in {None, "raw"} and not spec.allowed and not has_items

    def faults(self, content: Payload, values: Any, rows: Any, index: int) -> Iterator[tuple[int, Fault]]:
        """Yield faults with their rows, and count sound values."""
        if not len(values) or self._are_sound(values):
            return
        is_bytes = self._spec.kind == "bytes"
        for row, value in zip(rows.tolist(), map(_to_list, values), strict=True):
            of_row = [content[value[0] : value[0] + value[1]]] if is_bytes else value
            fault = self._check(of_row, index + row)
            if fault is not None:
                yield row, fault

    def _are_sound(self, values: Any) -> bool:
        """Whether all values are sound; then they are counted."""
        if self._spec.kind == "bytes":
            return self._is_size_enough and self._are_sound_sizes(values[:, 1])
        return fits_shape(values.shape[1], self._spec.shape) and self._are_sound_numbers(values)

    def _are_sound_sizes(self, sizes: Any) -> bool:
        if self._size_fits is not None and not all(map(self._size_fits, set(sizes.tolist()))):
            return False
        self._note(sizes)
        return True

    def _are_sound_numbers(self, numbers: Any) -> bool:
        spec, lowest, highest = self._spec, numbers.min().item(), numbers.max().item()
        if not math.isfinite(lowest) or not math.isfinite(highest) or _has_two_zeros(numbers, lowest, highest):
            return False
        if (spec.minimum is not None and lowest < spec.minimum) or (
            spec.maximum is not None and highest > spec.maximum
        ):
            return False
        if spec.allowed and not all(map(set(spec.allowed).issuperset, map(_to_list, numbers.T))):
            return False
        if spec.kind == "int64" and not spec.shape:
            self._count(numbers[:, 0], are_small=lowest >= 0 and highest < MAX_DISTINCT)
        self._note(numbers)
        return True

    def _note(self, numbers: Any) -> None:
        self._statistics.num_present += len(numbers)
        self._statistics.widen(numbers.min().item(), numbers.max().item())

    def _count(self, numbers: Any, *, are_small: bool) -> None:
        """Count numbers in the histogram, in the order of their first appearance if it may become full."""
        if are_small and len(self._statistics.histogram) + len(times := np.bincount(numbers)) <= MAX_DISTINCT:
            for number in np.flatnonzero(times).tolist():
                self._statistics.count(str(number), int(times[number]))
            return
        found, first, times = np.unique(numbers, return_index=True, return_counts=True)
        for place in np.argsort(first).tolist():
            self._statistics.count(str(found[place]), int(times[place]))


def _to_list(numbers: Any) -> list[Any]:
    listed: list[Any] = numbers.tolist()
    return listed


def _has_two_zeros(numbers: Any, lowest: float, highest: float) -> bool:
    """Whether 0.0 and -0.0 are the same extreme: the first of them counts."""
    return numbers.dtype.kind == "f" and 0.0 in {lowest, highest} and bool(np.signbit(numbers[numbers == 0]).any())
