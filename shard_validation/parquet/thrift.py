"""The part of Thrift's compact protocol that footers and page headers need, with a limit on the number of values.

Source: apache/thrift, doc/specs/thrift-compact-protocol.md.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

BOOL, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
"""Types of values; the type of a boolean field is its value."""

Wanted = Mapping[int, "int | Wanted"]
"""Field ids to keep, each with its type, or with the fields to keep of a struct or of the structs in a list.

A field of another type is skipped, as Thrift's own readers do. An empty mapping accepts any struct or list.
"""

_MAX_DEPTH = 32
_MAX_VARINT_BYTES = 10
_LONG_LIST = 15
_DOUBLE_BYTES = 8


class ThriftError(ValueError):
    """The bytes are malformed."""


class ThriftEndError(ThriftError):
    """The bytes end too early."""


class ThriftTooComplexError(ThriftError):
    """The content has more values, or is nested deeper, than allowed."""


class CompactReader:
    """Reads structs from bytes, up to a total number of values."""

    def __init__(self, content: bytes | memoryview, max_values: int) -> None:
        self._content = content
        self._left = max_values
        self.position = 0

    def read_struct(self, wanted: Wanted, depth: int = 0) -> dict[int, Any]:
        """Return the wanted fields that are present; skip the others. Raises ThriftError."""
        found: dict[int, Any] = {}
        field = 0
        while head := self._byte():
            delta, kind = head >> 4, head & 15
            field = field + delta if delta else self._zigzag()
            asked = wanted.get(field)
            value = self._value(kind, asked if isinstance(asked, Mapping) else None, depth, in_list=False)
            if asked is not None and _fits(kind, asked):
                found[field] = value
        return found

    def _value(self, kind: int, wanted: Wanted | None, depth: int, *, in_list: bool) -> Any:
        self._left -= 1
        if self._left < 0:
            raise ThriftTooComplexError("more values than the limits allow")
        if depth > _MAX_DEPTH:
            raise ThriftTooComplexError(f"values nested more than {_MAX_DEPTH} deep")
        if kind in {BOOL, FALSE}:
            return self._byte() == BOOL if in_list else kind == BOOL
        if kind in {LIST, SET}:
            return self._list(wanted, depth)
        if kind == MAP:
            return self._map(depth)
        if kind == STRUCT:
            return self.read_struct(wanted or {}, depth + 1)
        return self._scalar(kind)

    def _scalar(self, kind: int) -> Any:
        if kind == BYTE:
            return self._byte()
        if kind in {I16, I32, I64}:
            return self._zigzag()
        if kind == DOUBLE:
            return struct.unpack("<d", self._take(_DOUBLE_BYTES))[0]
        if kind == BINARY:
            return self._take(self._varint())
        raise ThriftError(f"a value of unknown type {kind} at byte {self.position}")

    def _list(self, wanted: Wanted | None, depth: int) -> list[Any]:
        head = self._byte()
        size, kind = head >> 4, head & 15
        if size == _LONG_LIST:
            size = self._varint()
        if size:
            self._check_kinds(kind)
        values = []
        for _ in range(min(size, self._left + 1)):
            value = self._value(kind, wanted, depth + 1, in_list=True)
            if wanted is not None:
                values.append(value)
        return values

    def _map(self, depth: int) -> None:
        size = self._varint()
        if not size:
            return
        kinds = self._byte()
        self._check_kinds(kinds >> 4, kinds & 15)
        for _ in range(min(size, self._left + 1)):
            self._value(kinds >> 4, None, depth + 1, in_list=True)
            self._value(kinds & 15, None, depth + 1, in_list=True)

    def _check_kinds(self, *kinds: int) -> None:
        """Reject unknown types; the caller skips empty lists, for which writers state 0."""
        if any(not BOOL <= kind <= STRUCT for kind in kinds):
            raise ThriftError(f"an unknown type among {kinds} at byte {self.position}")

    def _byte(self) -> int:
        try:
            value = self._content[self.position]
        except IndexError:
            raise ThriftEndError(f"the end at byte {self.position}") from None
        self.position += 1
        return value

    def _take(self, length: int) -> bytes:
        stop = self.position + length
        if stop > len(self._content):
            raise ThriftError(f"fewer than {length} bytes after byte {self.position}")
        value = bytes(self._content[self.position : stop])
        self.position = stop
        return value

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 7 * _MAX_VARINT_BYTES, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 - the continuation bit
                return value
        raise ThriftError(f"a number of more than {_MAX_VARINT_BYTES} bytes at byte {self.position}")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)


def _fits(kind: int, asked: int | Wanted) -> bool:
    if isinstance(asked, Mapping):
        return kind in {STRUCT, LIST}
    return kind == asked or (asked == BOOL and kind == FALSE)
