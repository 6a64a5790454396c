"""Ledger records as columns of a table row, and back.

A string property holds 64 KiB of UTF-16 at most: longer texts go on in ``name_1``, ``name_2`` … A member that a row
does not have takes the record's default, so rows written by an older version stay readable.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import MISSING, Field, fields
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar, cast, get_type_hints

from function_app.dead_letters import DeadLetter
from function_app.ledger import DatasetVersion, Decision, Generation, NotificationRecord, RunRecord, ShardRecord
from shard_validation import Reason

MAX_COLUMN_CHARS = 16_000
"""Code points; at two UTF-16 units each they stay below 32 Ki units."""

R = TypeVar("R", ShardRecord, Generation, RunRecord, NotificationRecord, Decision, DeadLetter)

Columns = dict[str, Any]

_NOT_STORED = "revision"
"""It is the mark of the row's writer, see ``tables.new_writer``."""


def to_columns(
    record: ShardRecord | Generation | RunRecord | NotificationRecord | Decision | DeadLetter,
) -> Columns:
    """Return a record's columns: plain ones for people to look at, JSON for what is nested."""
    columns: Columns = {}
    for member in fields(record):
        if member.name != _NOT_STORED:
            columns |= _column(member.name, getattr(record, member.name))
    return columns


def from_columns(record_class: type[R], columns: Mapping[str, Any], *, revision: str | None = None) -> R:
    """Return the record that ``to_columns`` took apart; ``revision`` for those that have one."""
    hints = _hints(cast("Hashable", record_class))
    members = {f.name: _member(f, hints[f.name], columns) for f in fields(record_class)}
    if revision is not None:
        members[_NOT_STORED] = revision
    return record_class(**members)


@cache
def _hints(record_class: Hashable) -> dict[str, Any]:
    return get_type_hints(record_class)


def _column(name: str, value: Any) -> Columns:
    columns: Columns
    match value:
        case None:
            columns = {}
        case DatasetVersion():
            columns = {"dataset": value.dataset, "version": value.version}
        case datetime():
            columns = {name: value.isoformat()}
        case bool():  # before the whole numbers, of which it is one
            columns = {name: json.dumps(value)}
        case int():
            columns = {name: (value, "Edm.Int64")}
        case str():  # the enumerations too: their values are the stored words
            columns = long_text(name, str(value))
        case tuple():
            columns = long_text(name, json.dumps([reason.to_json() for reason in value]))
        case _:
            columns = long_text(name, json.dumps(value))
    return columns


def long_text(name: str, text: str) -> Columns:
    """Return the columns that hold a text of any length."""
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
    """Return what `long_text` took apart."""
    parts = [columns[name]]
    while (following := f"{name}_{len(parts)}") in columns:
        parts.append(columns[following])
    return "".join(parts)
