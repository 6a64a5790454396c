"""Ledger records as columns of a table row, and back.

A string property has at most 64 KiB of UTF-16; longer texts continue in ``name_1``, ``name_2`` … A member that is
missing in a row gets the record's default, so that rows of older releases stay readable.
"""

from __future__ import annotations

import hashlib
import json
import string
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, Field, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar, cast, get_type_hints

from function_app.domain.records import (
    DatasetVersion,
    DeadLetter,
    Generation,
    HistoryEntry,
    NotificationRecord,
    RunRecord,
    ShardRecord,
)
from shard_validation import Reason

MAX_COLUMN_CHARS = 16_000
"""Code points per column; with two UTF-16 units each, they stay below 32 Ki units."""

R = TypeVar("R", ShardRecord, Generation, RunRecord, NotificationRecord, HistoryEntry, DeadLetter)

Columns = dict[str, Any]

_NOT_STORED = "revision"
"""Not a column, because it is the mark of the row's writer, see ``tables.new_writer``."""


def to_columns(
    record: ShardRecord | Generation | RunRecord | NotificationRecord | HistoryEntry | DeadLetter,
) -> Columns:
    """Return a record's columns: plain columns for people, JSON for nested members."""
    columns: Columns = {}
    for member in fields(record):
        if member.name != _NOT_STORED:
            columns |= _column(member.name, getattr(record, member.name))
    return columns


def from_columns(record_class: type[R], columns: Mapping[str, Any], *, revision: str | None = None) -> R:
    """Return the record from the columns of ``to_columns``; ``revision`` is for records that have one."""
    hints = _hints(cast("Hashable", record_class))
    members = {f.name: _member(f, hints[f.name], columns) for f in fields(record_class)}
    if revision is not None:
        members[_NOT_STORED] = revision
    return record_class(**members)


@cache
def _hints(record_class: Hashable) -> dict[str, Any]:
    # records.py imports Reason only for type checkers, because indexing the functions must not load the validator.
    return get_type_hints(record_class, localns={"Reason": Reason})


def _column(name: str, value: Any) -> Columns:
    columns: Columns
    match value:
        case None:
            columns = {}
        case DatasetVersion():
            columns = {"dataset": value.dataset, "version": value.version}
        case datetime():
            columns = {name: value.isoformat()}
        case bool():  # before integers, because bool is a subclass of int
            columns = {name: json.dumps(value)}
        case int():
            columns = {name: (value, "Edm.Int64")}
        case str():  # Enumerations too, whose values are stored.
            columns = long_text(name, str(value))
        case tuple():
            columns = long_text(name, json.dumps([reason.to_json() for reason in value]))
        case _:
            columns = long_text(name, json.dumps(value))
    return columns


def long_text(name: str, text: str) -> Columns:
    """Return the columns for a text of any length."""
    starts = range(0, max(len(text), 1), MAX_COLUMN_CHARS)
    return {f"{name}_{n}" if n else name: text[s : s + MAX_COLUMN_CHARS] for n, s in enumerate(starts)}


def _member(member: Field[Any], hint: Any, columns: Mapping[str, Any]) -> Any:
    if hint is DatasetVersion:
        return DatasetVersion(dataset=columns["dataset"], version=columns["version"])
    if member.name not in columns:
        return _default(member)
    return _reader(hint)(columns, member.name)


def _default(member: Field[Any]) -> Any:
    if member.default_factory is not MISSING:
        return member.default_factory()
    return None if member.default is MISSING else member.default


def _reader(hint: Any) -> Callable[[Mapping[str, Any], str], Any]:
    if hint in (datetime, datetime | None):
        return lambda columns, name: datetime.fromisoformat(columns[name])
    if hint in (int, int | None):
        return lambda columns, name: columns[name].value
    if hint == tuple[Reason, ...]:
        return lambda columns, name: tuple(map(Reason.from_json, json.loads(read_long_text(columns, name))))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return lambda columns, name: hint(columns[name])
    if hint in (str, str | None):
        return read_long_text
    return lambda columns, name: json.loads(read_long_text(columns, name))


def read_long_text(columns: Mapping[str, Any], name: str) -> str:
    """Return the text from the columns of `long_text`."""
    parts = [columns[name]]
    while (following := f"{name}_{len(parts)}") in columns:
        parts.append(columns[following])
    return "".join(parts)


MAX_NAME_CHARS = 200
"""Two names, a bucket and separators fit into 512 characters; a run id of 255 characters has its own key."""

_DIGEST_CHARS = 32
_SAFE = frozenset((string.ascii_letters + string.digits + "-_.").encode())
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_END_OF_TIME_US = 10**17 - 1


def escaped(name: str, *, max_chars: int = MAX_NAME_CHARS) -> str:
    """Return a name as part of a key: bytes other than letters, digits and ``-_.`` become ``~XX``.

    A tilde is used because some clients decode percent signs in keys once too often. A name that is too long is
    truncated and ends in its digest.
    """
    encoded = name.encode("utf-8", "surrogatepass")
    text = "".join(chr(byte) if byte in _SAFE else f"~{byte:02X}" for byte in encoded)
    if len(text) <= max_chars:
        return text
    digest = hashlib.sha256(encoded).hexdigest()[:_DIGEST_CHARS]
    return f"{text[: max_chars - _DIGEST_CHARS - 2]}~~{digest}"


def joined(*parts: str) -> str:
    """Join escaped parts into one key."""
    return "|".join(parts)


def after(prefix: str) -> str:
    """Return the smallest key that is greater than every ``prefix|…``."""
    return prefix + chr(ord("|") + 1)


def ascending(time: datetime) -> str:
    """Return a time as a key part that sorts the oldest first, with microseconds."""
    return f"{_microseconds(time):017d}"


def descending(time: datetime) -> str:
    """Return a time as a key part that sorts the newest first, with microseconds."""
    return f"{_END_OF_TIME_US - _microseconds(time):017d}"


def _microseconds(time: datetime) -> int:
    if time.tzinfo is None:
        raise ValueError(f"time {time.isoformat()} has no time zone; pass an aware one, such as utcnow()")
    return (time - _EPOCH) // _MICROSECOND
