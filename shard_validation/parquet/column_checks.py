"""Columns checked many rows at a time: sound rows are recognised together, the others one by one.

`features.compile_values_check` defines which rows are sound, and the messages about the others, as for TFRecord. The
checks here only decide whether it would find no fault in any of these rows; if so, they count the rows as it would.
Otherwise the rows are divided, and it checks the few that remain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shard_validation.features import (
    ITEM_FORMATS,
    MAX_LABEL_BYTES,
    as_stored,
    compile_values_check,
    fits_shape,
    missing,
    raw_sizes,
)
from shard_validation.reasons import Fault
from shard_validation.requirements import DataRequirements
from shard_validation.validate import MAX_DISTINCT, FeatureStatistics
from shared.manifest import FeatureSpec

_MAX_EXACT = 1 << 53
"""Integers up to this value are exact floats, so that both can be compared."""
_FEW_ROWS = 64
_PARTS = 16
"""Number of parts into which rows are divided if they are not all sound."""


class ColumnCheck:
    """Checks the values of one feature, batch after batch."""

    def __init__(self, spec: FeatureSpec, requirements: DataRequirements, statistics: FeatureStatistics) -> None:
        self._spec = as_stored(spec)
        self._statistics = statistics
        self._check_row = compile_values_check(spec, requirements, statistics)
        self._are_sound = self._compile()
        self._max_reasons = requirements.limits.max_reasons
        self._num_faults = 0
        self._latest: tuple[Fault, int] | None = None

    def faults(self, column: pa.Array, row: int) -> Iterator[tuple[Fault, int]]:
        """Yield faults with their rows, which count from ``row``, and count the sound rows."""
        if self._are_sound is not None and len(column) and self._are_sound(column):
            return
        if self._latest is not None and self._num_faults >= self._max_reasons:
            num_faults = self._num_unsound_numbers(column)
            if num_faults is not None:
                yield from repeat(self._latest, num_faults)  # further faults are only counted
                return
        if self._are_sound is not None and len(column) > _FEW_ROWS:
            step = -(-len(column) // _PARTS)
            for start in range(0, len(column), step):
                yield from self.faults(column.slice(start, step), row + start)
            return
        for index, value in enumerate(_row_values(column), row):
            if (fault := self.row_fault(value, index)) is not None:
                self._num_faults, self._latest = self._num_faults + 1, (fault, index)
                yield fault, index

    def row_fault(self, value: Any, row: int) -> Fault | None:
        """Check one row: a value, a list of them, or None."""
        if value is None or (isinstance(value, list) and None in value):
            return missing(self._spec) if self._spec.required else None
        return self._check_row(value if isinstance(value, list) else [value], row)

    def _compile(self) -> Callable[[pa.Array], bool] | None:
        """Return the check of many rows, or None if each row must be checked separately."""
        if self._spec.kind != "bytes":
            return self._are_sound_numbers
        if self._spec.encoding == "raw":
            return self._are_sound_tensors
        return None if self._spec.encoding in {"jpeg", "png", "image"} else self._are_sound_bytes

    def _are_sound_numbers(self, column: pa.Array) -> bool:
        parts = self._parts(column)
        if parts is None:
            return False
        lengths, values = parts
        if not len(values):
            return True
        if not _is_number(values.type):
            return False
        numbers = values.to_numpy(zero_copy_only=False)
        lowest, highest = numbers.min().item(), numbers.max().item()
        if not self._are_in_range(lowest, highest) or not self._are_allowed(values, self._spec.allowed):
            return False
        if self._spec.kind == "int64" and not self._spec.shape:
            self._count(values)
        self._note(len(values) if lengths is None else int(np.count_nonzero(lengths)), lowest, highest)
        return True

    def _num_unsound_numbers(self, column: pa.Array) -> int | None:
        """Count faulty rows of one number, and the sound ones; None if each row must be checked separately."""
        spec = self._spec
        stated = [n for n in (spec.minimum, spec.maximum, *spec.allowed) if n is not None]
        if column.null_count or spec.shape or not _is_number(column.type):
            return None
        if any(isinstance(n, str) or abs(n) > _MAX_EXACT for n in stated):
            return None
        numbers = column.to_numpy(zero_copy_only=False)
        are_sound = np.isfinite(numbers)
        if spec.minimum is not None:
            are_sound &= numbers >= np.float64(spec.minimum)
        if spec.maximum is not None:
            are_sound &= numbers <= np.float64(spec.maximum)
        if spec.allowed:
            are_sound &= np.isin(numbers.astype(np.float64), spec.allowed)
        sound = column.filter(pa.array(are_sound))
        if len(sound) and not self._are_sound_numbers(sound):
            return None
        return len(column) - len(sound)

    def _are_sound_bytes(self, column: pa.Array) -> bool:
        """Check texts, and bytes of any content."""
        parts = self._parts(column, may_be_one=True)
        if parts is None or not pa.types.is_large_binary(parts[1].type):
            return False
        values = parts[1]
        if not len(values):
            return True
        lengths = _byte_lengths(values)
        if self._spec.allowed or self._spec.encoding == "text":
            try:
                texts = values.cast(pa.large_string())
            except pa.ArrowInvalid:  # not UTF-8
                return False
            if not self._are_allowed(texts, map(str, self._spec.allowed)):
                return False
            are_short = lengths <= MAX_LABEL_BYTES
            self._count(texts if are_short.all() else texts.filter(pa.array(are_short)))
        self._note(len(values), int(lengths.min()), int(lengths.max()))
        return True

    def _are_sound_tensors(self, column: pa.Array) -> bool:
        if column.null_count or not pa.types.is_large_binary(column.type):
            return False
        spec, lengths = self._spec, _byte_lengths(column)
        if not all(map(raw_sizes(spec)[0], map(int, np.unique(lengths)))):
            return False
        item_format = ITEM_FORMATS[spec.dtype or "uint8"]
        if item_format == "f" or spec.minimum is not None or spec.maximum is not None:
            offsets, content = _binary_content(column)
            items = np.frombuffer(content[offsets[0] : offsets[-1]], item_format)
            if len(items) and not self._are_in_range(items.min().item(), items.max().item()):
                return False
        self._note(len(column), int(lengths.min()), int(lengths.max()))
        return True

    def _parts(self, column: pa.Array, *, may_be_one: bool = False) -> tuple[Any, pa.Array] | None:
        """Return the number of values in each row (None if each has one) and all values; None for unsound rows."""
        if column.null_count:
            if self._spec.required:
                return None
            column = column.drop_null()
        shape = self._spec.shape
        if not _is_list(column.type):
            return (None, column) if may_be_one or fits_shape(1, shape) else None
        lengths, values = pc.list_value_length(column).to_numpy(zero_copy_only=False), column.flatten()
        fit = all((may_be_one and n == 1) or fits_shape(int(n), shape) for n in np.unique(lengths))
        return (lengths, values) if fit and not values.null_count else None

    def _are_in_range(self, lowest: float, highest: float) -> bool:
        """Compare with the range of the feature; a NaN among the values is both the lowest and the highest."""
        low, high = self._spec.minimum, self._spec.maximum
        are_finite = math.isfinite(lowest) and math.isfinite(highest)
        return are_finite and (low is None or lowest >= low) and (high is None or highest <= high)

    def _are_allowed(self, values: pa.Array, allowed: Iterable[Any]) -> bool:
        return not self._spec.allowed or set(allowed).issuperset(values.unique().to_pylist())

    def _note(self, num_values: int, lowest: float, highest: float) -> None:
        self._statistics.num_present += num_values
        self._statistics.widen(lowest, highest)

    def _count(self, values: pa.Array) -> None:
        """Count values in the histogram in the order of their first appearance."""
        statistics, histogram = self._statistics, self._statistics.histogram
        if len(histogram) < MAX_DISTINCT:
            for counted in pc.value_counts(values).to_pylist():
                statistics.count(str(counted["values"]), counted["counts"])
            return
        keys = list(histogram)
        known = keys if pa.types.is_large_string(values.type) else list(map(int, keys))
        places = pc.index_in(values, value_set=pa.array(known, values.type))
        statistics.other += places.null_count
        times = np.bincount(places.drop_null().to_numpy(), minlength=len(keys))
        for place in np.flatnonzero(times):
            histogram[keys[place]] += int(times[place])


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _byte_lengths(values: pa.Array) -> Any:
    return pc.binary_length(values).to_numpy(zero_copy_only=False)


def _binary_content(column: pa.Array) -> tuple[Any, memoryview]:
    """Return the start of each value of a column of byte arrays and the end of the last one, and the content."""
    _, offsets, content = column.buffers()
    places = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    return places, memoryview(content or b"").cast("B")


def _row_values(column: pa.Array) -> Iterator[Any]:
    """Yield numbers, bytes, lists of them, and None; large bytes are views."""
    if not pa.types.is_large_binary(column.type) or not len(column):
        yield from column.to_pylist()
        return
    places, content = _binary_content(column)
    are_present = column.is_valid().to_numpy(zero_copy_only=False).tolist()
    starts = places.tolist()
    for start, stop, is_present in zip(starts, starts[1:], are_present, strict=False):
        yield content[start:stop] if is_present else None
