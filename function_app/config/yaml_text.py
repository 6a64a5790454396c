"""Untrusted YAML within limits: as JSON, and the line of each of its fields."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import yaml

from function_app.domain.errors import PipelineError
from shard_validation.hub_lists import BoundedNodes, place_of
from shared.safe_text import setting_value

MAX_FILE_BYTES = 256 << 10
MAX_SHOWN_CHARS = 100
"""Characters of a number that a message shows."""


def yaml_as_json(text: bytes, name: str) -> str:
    """Return a YAML text as JSON. Raises PipelineError."""
    if len(text) > MAX_FILE_BYTES:
        raise PipelineError(f"{name}: the file is larger than {MAX_FILE_BYTES} bytes")
    try:
        found = yaml.load(text, Loader=_Loader)  # noqa: S506 (a SafeLoader)
        for field, number in _infinite(found, ()):
            raise PipelineError(f"{name}: {field}: must be a finite number, got {number}")
        return json.dumps(found, allow_nan=False)
    except (yaml.YAMLError, TypeError, ValueError) as error:
        raise PipelineError(f"{name}: not valid YAML: {_yaml_problem(error)}") from error


def _infinite(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield field path and text of each number that is no finite float, which a whole one of 400 digits is not."""
    if isinstance(value, dict | list):
        for key, member in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _infinite(member, (*path, str(key)))
    elif isinstance(value, int | float) and not abs(value) <= sys.float_info.max:
        yield ".".join(path) or "the file", str(value)[:MAX_SHOWN_CHARS]


def _yaml_problem(error: Exception) -> str:
    """Return the problem without the line that PyYAML quotes: it may hold a secret."""
    if isinstance(error, yaml.MarkedYAMLError):
        for mark in (error.context_mark, error.problem_mark):
            if mark is not None:
                mark.buffer = None
    tabs = "; indent with spaces, not with tabs" if "'\\t' that cannot start" in str(error) else ""
    return " ".join(str(error).replace(' in "<byte string>"', "").split())[:500] + tabs


def lines_of(text: bytes) -> dict[str, int]:
    """Return field path → line, counted from 1; empty if the text cannot be parsed."""
    try:
        node = _Loader(text[:MAX_FILE_BYTES]).get_single_node()
    except (yaml.YAMLError, UnicodeError):
        return {}
    return dict(_lines(node, ()))


def _lines(node: Any, path: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    if isinstance(node, yaml.MappingNode):
        members = [(str(key.value), key, value) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        members = [(str(number), value, value) for number, value in enumerate(node.value)]
    else:
        return
    for name, place, value in members:
        yield ".".join((*path, name)), place.start_mark.line + 1
        yield from _lines(value, (*path, name))


class _Loader(BoundedNodes, yaml.SafeLoader):
    """YAML without aliases, duplicate keys (the last one would win) and dates."""

    def construct_object(self, node: Any, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 (PyYAML's own)
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, LookupError) as error:  # PyYAML's own, where a value does not fit its tag
            tag = node.tag.removeprefix("tag:yaml.org,2002:")
            raise yaml.YAMLError(
                f"{setting_value(node.value)} is not a value of !!{tag}, {place_of(node.start_mark)}"
            ) from error

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 (PyYAML's own)
        if not isinstance(node, yaml.MappingNode):
            raise yaml.YAMLError(f"expected a mapping, {place_of(node.start_mark)}")
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:str":
                raise yaml.YAMLError(
                    f"keys must be texts, got {setting_value(str(key.value))}, {place_of(key.start_mark)}"
                )
            if key.value in seen:
                raise yaml.YAMLError(f"key {setting_value(key.value)} is repeated, {place_of(key.start_mark)}")
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _date_as_text(loader: _Loader, node: yaml.ScalarNode) -> str:
    return str(loader.construct_scalar(node))


def _number(loader: _Loader, node: yaml.ScalarNode) -> int | float:
    """Read a number that YAML 1.1 and 1.2 read alike; 010 is 8 in one and 10 in the other."""
    text = str(loader.construct_scalar(node))
    if _AMBIGUOUS.fullmatch(text):
        meant = "write a number without leading zeros, _ and :, or a text in quotes"
        raise yaml.YAMLError(f"{setting_value(text)} is ambiguous: {meant}, {place_of(node.start_mark)}")
    is_int = node.tag == "tag:yaml.org,2002:int"
    number: int | float = loader.construct_yaml_int(node) if is_int else loader.construct_yaml_float(node)
    return number


_AMBIGUOUS = re.compile(r"[-+]?0[0-9_]+|[-+]?[0-9][0-9_:.]*[_:][0-9_:.]*")
_FLOAT_1_2 = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)[eE][-+]?[0-9]+")
"""YAML 1.2 reads 1e-3 as a number; PyYAML, which reads YAML 1.1, takes it for a text without a point in it."""

_Loader.add_constructor("tag:yaml.org,2002:timestamp", _date_as_text)
_Loader.add_constructor("tag:yaml.org,2002:int", _number)
_Loader.add_constructor("tag:yaml.org,2002:float", _number)
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT_1_2, list("-+.0123456789"))
