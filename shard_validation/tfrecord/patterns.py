"""Read the values of many examples at once, using the patterns of a few of them.

Most examples of a dataset have the same features in the same order. The bytes between their values are the same,
except for the lengths of byte values and of the messages around them. A pattern says which bytes are the same, where
the lengths are, and what they must add up to; it is compared with many examples in a few steps of numpy.

An example that matches a pattern has the usual encoding, so the protobuf runtime would read exactly the same values.
The runtime reads all other examples. numpy checks every access, so no content can cause a read outside a chunk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from shard_validation.tfrecord.layout import NotPlainError, Payload, Span, few_spans, inside
from shared.manifest import FeatureSpec

MAX_PATTERNS = 32
_MAX_FAILURES = 64
"""Number of examples without a usable pattern after which no more patterns are learnt."""
_MAX_FAILURES_AT_ONCE = 4
_MAX_FIXED_BYTES = 4 << 10
"""Bytes of an example that are not byte values; they are copied."""
_MAX_INTEGERS = 256
"""The most in one example; each takes eight bytes in a column."""
_MAX_LENGTH_BYTES = 4
_LONGEST_INTEGER = 10
"""Bytes of a negative number; the last of them is 1."""
_WORD_BYTES = 8

_Place = tuple[int, int]
"""A segment, and the bytes after its begin."""


class Columns:
    """The values of many examples: one array for each feature, with a row for each example."""

    def __init__(self, starts: Any, stops: Any) -> None:
        self._starts, self._stops = starts, stops
        self.are_read = np.zeros(len(starts), bool)
        """Which examples agree with a pattern; nothing is known about the others."""
        self.values: dict[int, Any] = {}
        """Place of a feature → its numbers; for a byte value, its start and its number of bytes."""
        self.are_present: dict[int, Any] = {}
        """Place of a feature → which examples have it."""

    def read(self, pattern: Pattern, content: _Windows, rows: Any) -> Any:
        """Read some rows that agree with a pattern; return which of them do."""
        agree, values = pattern.read(content, self._starts[rows], self._stops[rows])
        rows = rows[agree]
        for place, some in values.items():
            if place not in self.values:
                self.values[place] = np.zeros((len(self.are_read), some.shape[1]), some.dtype)
                self.are_present[place] = np.zeros(len(self.are_read), bool)
            self.values[place][rows] = some[agree]
            self.are_present[place][rows] = True
        self.are_read[rows] = True
        return agree


class Patterns:
    """The patterns of one shard, learnt from examples that match no earlier pattern."""

    def __init__(self, specs: Sequence[FeatureSpec]) -> None:
        self._specs = specs
        self._patterns: list[Pattern] = []
        self._counts: dict[int, int] = {}
        self._num_failures = 0

    def read(self, content: Payload, starts: Any, stops: Any) -> Columns:
        """Read the examples between ``starts`` and ``stops`` that match a pattern."""
        columns, windows, left = Columns(starts, stops), _Windows(content), np.arange(len(starts))
        for pattern in self._patterns:
            if len(left):
                left = left[~columns.read(pattern, windows, left)]
        failures = 0
        while len(left) and failures < _MAX_FAILURES_AT_ONCE and self._may_learn():
            learnt = self._learn(bytes(content[starts[left[0]] : stops[left[0]]]))
            if learnt is None:
                failures, left = failures + 1, left[1:]
            else:
                left = left[~columns.read(learnt, windows, left)]
        if 2 * np.count_nonzero(columns.are_read) < len(starts) and not self._may_learn():
            self._patterns, self._num_failures = [], _MAX_FAILURES  # comparing costs more than it saves
        return columns

    def _may_learn(self) -> bool:
        return len(self._patterns) < MAX_PATTERNS and self._num_failures < _MAX_FAILURES

    def _learn(self, example: bytes) -> Pattern | None:
        """Add the pattern of an example; None if it has no pattern, or another number of values than those before."""
        try:
            pattern = Pattern(example, self._specs)
        except (NotPlainError, UnicodeDecodeError):
            self._num_failures += 1
            return None
        if any(self._counts.setdefault(place, count) != count for place, count in pattern.counts.items()):
            self._num_failures += 1
            return None
        self._patterns.append(pattern)
        return pattern


class _Windows:
    """Content from which pieces of equal length are taken at many positions."""

    def __init__(self, content: Payload) -> None:
        self._content = np.frombuffer(content, np.uint8)

    def __len__(self) -> int:
        """Return the number of bytes."""
        return len(self._content)

    def at(self, places: Any, num_bytes: int) -> Any:
        """Return the bytes from each place, one row for each."""
        pieces: Any = np.ndarray((len(self) - num_bytes + 1,), f"V{num_bytes}", self._content, strides=(1,))
        return pieces[places].view(np.uint8).reshape(len(places), num_bytes)


class _Varint(NamedTuple):
    """The position of an integer with a fixed number of bytes."""

    segment: int
    column: int
    num_bytes: int

    def read(self, windows: Sequence[Any]) -> Any:
        """Return the integer of each row."""
        window = windows[self.segment]
        if self.num_bytes == 1:
            return window[:, self.column].astype(np.int64)
        number = np.zeros(len(window), np.uint64)
        for i in range(self.num_bytes):
            number |= (window[:, self.column + i] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * i)
        return number.view(np.int64)

    def is_shortest(self, windows: Sequence[Any]) -> Any:
        """Return in which rows the last byte is needed."""
        return windows[self.segment][:, self.column + self.num_bytes - 1] != 0


class _Length(NamedTuple):
    """A length that depends on byte values, and the places between which it counts."""

    varint: _Varint
    start: _Place
    stop: _Place


class _Segment:
    """Bytes up to the next byte value, or to the end of the example."""

    def __init__(self, content: bytes, mask: bytes, length: _Varint | None) -> None:
        self.num_bytes = len(content)
        self.num_padded = (len(content) // _WORD_BYTES + 1) * _WORD_BYTES
        self._mask = np.frombuffer(mask.rjust(self.num_padded, b"\0"), np.uint64)
        self._expected = np.frombuffer(content.rjust(self.num_padded, b"\0"), np.uint64) & self._mask
        self.length = length
        """The position of the length of the next byte value; None at the end."""

    def agrees(self, window: Any) -> Any:
        """Return which rows agree in all bytes that are the same in every example."""
        different = window.view(np.uint64) & self._mask
        different ^= self._expected
        return True if not different.any() else ~different.any(axis=1)


class Pattern:
    """The pattern of one example."""

    def __init__(self, example: bytes, specs: Sequence[FeatureSpec]) -> None:
        """Learn the pattern.

        Raises NotPlainError if it does not pay, or if a feature is missing or of another kind.
        """
        spans = few_spans(example)
        values = [span for span in spans if span.kind == "bytes"]
        if len(example) - sum(value.size for value in values) > _MAX_FIXED_BYTES:
            raise NotPlainError
        self._begins = [0, *(value.stop for value in values)]
        mask = bytearray(b"\xff" * len(example))
        self._integers: dict[str, list[_Varint]] = {}
        for span in spans:
            if span.kind == "int64":
                self._integers[span.name] = self._learn_integers(example, span, mask)
            elif span.kind == "float":
                mask[span.start : span.stop] = bytes(span.size)
        if len(list(self._all_integers())) > _MAX_INTEGERS:
            raise NotPlainError
        lengths_of_values, self._lengths = self._learn_lengths(example, values, mask)
        ends = [*(value.start for value in values), len(example)]
        self._segments = [
            _Segment(example[begin:end], bytes(mask[begin:end]), length)
            for begin, end, length in zip(self._begins, ends, [*lengths_of_values, None], strict=True)
        ]
        varints = [*lengths_of_values, *(each.varint for each in self._lengths), *self._all_integers()]
        self._to_shorten = [varint for varint in varints if 1 < varint.num_bytes < _LONGEST_INTEGER]
        found = ((place, _span_of(spec, spans)) for place, spec in enumerate(specs))
        self._spans = {place: span_found for place, span_found in found if span_found is not None}
        self.counts = {place: self._count(span) for place, span in self._spans.items()}
        """Place of a feature → number of its values."""

    def read(self, content: _Windows, starts: Any, stops: Any) -> tuple[Any, dict[int, Any]]:
        """Return which examples match, and the columns of `Columns.values`; only rows of these examples are valid."""
        agree = np.ones(len(starts), bool)
        begins, windows, values, at = [], [], [], starts
        for segment in self._segments:
            if len(content) < segment.num_padded:
                return np.zeros(len(starts), bool), {}
            padding = segment.num_padded - segment.num_bytes  # bytes before, as there are none after the last record
            agree &= (at >= padding) & (at + segment.num_bytes <= stops)
            at = np.where(agree, at, padding)
            begins.append(at)
            window = content.at(at - padding, segment.num_padded)
            windows.append(window[:, padding:])
            agree &= segment.agrees(window)
            at = at + segment.num_bytes
            if segment.length is not None:
                size = segment.length.read(windows)
                values.append(np.stack((at, size), axis=1))
                at = at + size
        agree &= at == stops
        for length in self._lengths:
            between = begins[length.stop[0]] + length.stop[1] - begins[length.start[0]] - length.start[1]
            agree &= length.varint.read(windows) == between
        for varint in self._to_shorten:
            agree &= varint.is_shortest(windows)
        return agree, {place: self._column(span, windows, values) for place, span in self._spans.items()}

    def _column(self, span: Span, windows: list[Any], values: list[Any]) -> Any:
        if span.kind == "bytes":
            return values[self._begins.index(span.stop) - 1]
        if span.kind == "int64":
            return np.stack([varint.read(windows) for varint in self._integers[span.name]], axis=1)
        segment, column = self._place(span.start)
        return np.ascontiguousarray(windows[segment][:, column : column + span.size]).view("<f4")

    def _count(self, span: Span) -> int:
        if span.kind == "bytes":
            return 1
        return len(self._integers[span.name]) if span.kind == "int64" else span.size

    def _place(self, position: int) -> _Place:
        segment = bisect_right(self._begins, position) - 1
        return segment, position - self._begins[segment]

    def _varint(self, start: int, stop: int) -> _Varint:
        return _Varint(*self._place(start), stop - start)

    def _all_integers(self) -> Iterator[_Varint]:
        return (varint for varints in self._integers.values() for varint in varints)

    def _learn_integers(self, example: bytes, span: Span, mask: bytearray) -> list[_Varint]:
        """Find the integers of a feature. Raises NotPlainError, also for those of features that are not needed."""
        varints: list[_Varint] = []
        start = span.start
        for position in range(span.start, span.stop):
            mask[position] = 0x80
            if example[position] & 0x80:
                continue
            num_bytes = position + 1 - start
            if num_bytes >= _LONGEST_INTEGER:
                mask[position] = 0xFF
            is_shortest = num_bytes == 1 or 0 < example[position] < (0x80 if num_bytes < _LONGEST_INTEGER else 2)
            if not is_shortest or num_bytes > _LONGEST_INTEGER:
                raise NotPlainError
            varints.append(self._varint(start, position + 1))
            start = position + 1
        if start != span.stop:
            raise NotPlainError
        return varints

    def _learn_lengths(
        self, example: bytes, values: Sequence[Span], mask: bytearray
    ) -> tuple[list[_Varint], list[_Length]]:
        """Find the lengths of byte values, and those that depend on them. Raises NotPlainError."""
        of_values, others = [], []
        starts = {value.start for value in values}
        for tag, start, stop in _lengths(example):
            if not any(start <= value.start and value.stop <= stop for value in values):
                continue
            varint = self._varint(tag + 1, start)
            if varint.num_bytes > _MAX_LENGTH_BYTES:
                raise NotPlainError
            mask[tag + 1 : start] = bytes([0x80]) * varint.num_bytes
            if start in starts:
                of_values.append(varint)
            else:
                begin = (varint.segment, varint.column + varint.num_bytes)
                others.append(_Length(varint, begin, self._place(stop)))
        return of_values, others


def _span_of(spec: FeatureSpec, spans: Sequence[Span]) -> Span | None:
    """Return the position of a feature's values; None if an optional feature is missing. Raises NotPlainError."""
    found = [span for span in spans if span.name == spec.name]
    if not found and not spec.required:
        return None
    if len(found) != 1 or found[0].kind != spec.kind:
        raise NotPlainError
    return found[0]


def _lengths(example: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield tag, begin and end of everything in a plain example that has a length, except names."""

    def content(tag: int) -> tuple[int, int, int]:
        return tag, *inside(example, tag, len(example), example[tag])

    features = content(0)
    yield features
    end_of_entry = features[1]
    while end_of_entry < features[2]:
        entry = content(end_of_entry)
        end_of_entry = entry[2]
        feature = content(content(entry[1])[2])
        values = content(feature[1])
        yield from (entry, feature, values)
        end_of_value = values[1]
        while end_of_value < values[2]:
            value = content(end_of_value)
            end_of_value = value[2]
            yield value
