"""Read the values of an example in place, using the layout of another example of the same length.

Most examples of a dataset have the same features in the same order and of the same sizes. The bytes between their
values are then equal in all of them. So if a payload agrees, outside the values, with an example that was parsed
before, its values lie at the same positions and it need not be parsed. Large examples of varying lengths, such as
those of JPEGs, are walked through instead: the few bytes between their values are read one by one.

The protobuf runtime reads everything else, including encodings that are valid but that no writer produces, such as
integers with superfluous bytes. Source of the encoding: protobuf.dev, "Encoding".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

from shared.manifest import FeatureKind, FeatureSpec

Payload = bytes | memoryview
Values = Sequence[Any] | None
"""Values of one feature; None if an optional feature is missing."""
ReadValues = Callable[[Payload], Sequence[Values] | None]
"""Returns the values of each feature in the order of the specs, plus one item; None if the runtime must decide."""

_FIRST, _SECOND = 0x0A, 0x12
"""Tags of the length-delimited fields 1 and 2."""
_KINDS: dict[int, FeatureKind] = {0x0A: "bytes", 0x12: "float", 0x1A: "int64"}
_MAX_LENGTHS = 1024
_MAX_SPANS = 64
"""With more values, comparing is no faster than parsing."""
_COPIED_BYTES = 16 << 10
"""Larger byte values are returned as views of the payload; more bytes of numbers have no layout."""
MIN_WALKED_BYTES = 32 << 10
"""From this size, walking is cheaper than the runtime, which copies the values and serializes them to compare."""
MIN_TOGETHER = 32
"""Fewer examples are checked faster one by one than at once."""
_FLOAT_BYTES = 4
_MAX_VARINT_BYTES = 9
"""The longest encoding of a number that is not negative."""

_Fields = tuple[Any, ...]
_GetValues = Callable[[_Fields, Payload], Values]


class NotPlainError(ValueError):
    """The payload is not encoded in the usual way, or a layout for it does not pay."""


class Span(NamedTuple):
    """The position of one byte value, or of all numbers of a feature."""

    name: str
    kind: FeatureKind
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.stop - self.start


class Layouts:
    """One layout for each payload length, learnt when the length appears for the second time."""

    def __init__(self, specs: Sequence[FeatureSpec]) -> None:
        self._specs = specs
        self._num_seen: dict[int, int] = {}
        self.readers: dict[int, ReadValues] = {}
        """By payload length."""

    def learn(self, payload: Payload) -> None:
        """Learn the layout of a payload that was parsed or walked through, and has no fault."""
        size = len(payload)
        num_seen = self._num_seen.get(size, 0)
        if num_seen > 1 or (not num_seen and len(self._num_seen) >= _MAX_LENGTHS):
            return
        self._num_seen[size] = num_seen + 1
        if num_seen:
            try:
                self.readers[size] = compile_layout(bytes(payload), self._specs)
            except NotPlainError:
                return


def compile_layout(example: bytes, specs: Sequence[FeatureSpec]) -> ReadValues:
    """Return a reader of payloads with the layout of this example. Raises NotPlainError."""
    split = _Split(example)
    unpack, get_around, integers = split.unpack, itemgetter(*split.around), split.integers
    around = get_around(unpack(example))
    getters = [_compile_getter(spec, split) for spec in specs]
    # One call picks the values of all features; field 0 is a placeholder for those that need a function.
    get_values = itemgetter(*(0 if callable(get) else get for get in getters), 0)
    others = [(place, get) for place, get in enumerate(getters) if callable(get)]

    def read(payload: Payload) -> Sequence[Values] | None:
        fields = unpack(payload)
        if get_around(fields) != around:
            return None
        try:
            for index in integers:
                if not fields[index].isascii():
                    _integers(fields[index])
            values: Sequence[Values] = get_values(fields)
            return with_others(list(values), fields, payload) if others else values
        except NotPlainError:
            return None

    def with_others(values: list[Values], fields: _Fields, payload: Payload) -> list[Values]:
        for place, get in others:
            values[place] = get(fields, payload)
        return values

    return read


def compile_walk(specs: Sequence[FeatureSpec]) -> ReadValues:
    """Return a reader of payloads of any layout that have all required features, encoded as writers do it."""
    places = {spec.name: place for place, spec in enumerate(specs)}
    required = [place for place, spec in enumerate(specs) if spec.required]

    def read(payload: Payload) -> Sequence[Values] | None:
        values: list[Any] = [None] * len(specs)
        try:
            for span in few_spans(payload):
                found = _read(payload, span)
                place = places.get(span.name)
                if place is None:
                    continue
                if span.kind != specs[place].kind:
                    return None
                values[place] = found if values[place] is None else [*values[place], *found]
        except (NotPlainError, UnicodeDecodeError):
            return None
        return None if any(values[place] is None for place in required) else values

    return read


def _read(payload: Payload, span: Span) -> Sequence[Any]:
    """Return the values in a span. Raises NotPlainError, for integers even if the feature is not needed."""
    if span.kind == "float":
        return struct.unpack_from(f"<{span.size // _FLOAT_BYTES}f", payload, span.start)
    if _is_viewed(span):
        return (payload[span.start : span.stop],)
    content = bytes(payload[span.start : span.stop])
    return (content,) if span.kind == "bytes" else _integers(content)


class _Split:
    """A payload split by `struct` into fields: alternately the bytes between the values, and the values."""

    def __init__(self, example: bytes) -> None:
        self.spans: dict[str, list[Span]] = {}
        self.around: list[int] = []
        """Fields that are not values."""
        self.first: dict[str, int] = {}
        """First field of each feature."""
        self.integers: list[int] = []
        """Fields of integers, which are checked even if the feature is not needed: they may be malformed."""
        layout, num_fields, position = ["<"], 0, 0
        for span in few_spans(example):
            layout.append(f"{span.start - position}s{_format(span)}")
            self.around.append(num_fields)
            self.spans.setdefault(span.name, []).append(span)
            self.first.setdefault(span.name, num_fields + 1)
            if span.kind == "int64":
                self.integers.append(num_fields + 1)
            num_fields += 1 + _num_fields(span)
            position = span.stop
        self.around.append(num_fields)
        self.unpack = struct.Struct("".join([*layout, f"{len(example) - position}s"])).unpack


def _num_fields(span: Span) -> int:
    if span.kind == "float":
        return span.size // _FLOAT_BYTES
    return 0 if _is_viewed(span) else 1


def _is_viewed(span: Span) -> bool:
    return span.kind == "bytes" and span.size > _COPIED_BYTES


def _format(span: Span) -> str:
    if span.kind == "float":
        return f"{span.size // _FLOAT_BYTES}f"
    return f"{span.size}{'x' if _is_viewed(span) else 's'}"


def _compile_getter(spec: FeatureSpec, split: _Split) -> int | slice | _GetValues:
    """Return the index or slice of a feature's values among the fields, or a function that returns them."""
    spans = split.spans.get(spec.name)
    if spans is None and not spec.required:
        return lambda _fields, _payload: None
    if spans is None or spans[0].kind != spec.kind:
        raise NotPlainError
    if any(map(_is_viewed, spans)):
        return lambda _, payload: [payload[span.start : span.stop] for span in spans]
    first = split.first[spec.name]
    if spec.kind == "bytes":
        return slice(first, first + 2 * len(spans), 2)
    if spec.kind == "float":
        return slice(first, first + _num_fields(spans[0]))
    if spans[0].size == 1:
        return first  # bytes are a sequence of integers themselves
    return lambda fields, _: _integers(fields[first])


def _integers(content: bytes) -> list[int]:
    """Return packed integers. Raises NotPlainError for negative ones, and for encodings with superfluous bytes."""
    if content.isascii():
        return list(content)
    values, value, num_bytes = [], 0, 0
    for byte in content:
        value |= (byte & 0x7F) << (7 * num_bytes)
        num_bytes += 1
        if byte >= 0x80:  # noqa: PLR2004 - the continuation bit
            continue
        if num_bytes > _MAX_VARINT_BYTES or (num_bytes > 1 and not byte):
            raise NotPlainError
        values.append(value)
        value = num_bytes = 0
    if num_bytes:
        raise NotPlainError
    return values


def few_spans(example: Payload) -> list[Span]:
    """Return the positions of the values of a plain example. Raises NotPlainError, also if there are too many."""
    spans = list(islice(_spans(example), _MAX_SPANS + 1))
    if len(spans) > _MAX_SPANS or any(span.kind != "bytes" and span.size > _COPIED_BYTES for span in spans):
        raise NotPlainError
    return spans


def _spans(example: Payload) -> Iterator[Span]:
    """Yield the spans of the values in order. Raises NotPlainError."""
    position = inside(example, 0, len(example), _FIRST, to_end=True)[0]
    names: set[str] = set()
    while position < len(example):
        entry, position = inside(example, position, len(example), _FIRST)
        key_start, key_stop = inside(example, entry, position, _FIRST)
        name = bytes(example[key_start:key_stop]).decode()
        if name in names:
            raise NotPlainError
        names.add(name)
        feature, _ = inside(example, key_stop, position, _SECOND, to_end=True)
        yield from _spans_of_feature(example, name, feature, position)


def _spans_of_feature(example: Payload, name: str, feature: int, end: int) -> Iterator[Span]:
    kind = _KINDS.get(example[feature]) if feature < end else None
    if kind is None:
        raise NotPlainError
    start, _ = inside(example, feature, end, example[feature], to_end=True)
    if start == end:
        raise NotPlainError
    while start < end:
        value, start = inside(example, start, end, _FIRST, to_end=kind != "bytes")
        if kind != "bytes" and (value == start or (kind == "float" and (start - value) % _FLOAT_BYTES)):
            raise NotPlainError
        yield Span(name, kind, value, start)


def inside(example: Payload, position: int, end: int, tag: int, *, to_end: bool = False) -> tuple[int, int]:
    """Return start and end of the content of a length-delimited field. Raises NotPlainError."""
    if position >= end or example[position] != tag:
        raise NotPlainError
    length = num_bytes = 0
    byte = 0x80
    while byte >= 0x80:  # noqa: PLR2004 - the continuation bit
        position += 1
        if position >= end or num_bytes == _MAX_VARINT_BYTES:
            raise NotPlainError
        byte = example[position]
        length |= (byte & 0x7F) << (7 * num_bytes)
        num_bytes += 1
    start, stop = position + 1, position + 1 + length
    if (num_bytes > 1 and not byte) or stop > end or (to_end and stop != end):
        raise NotPlainError
    return start, stop
