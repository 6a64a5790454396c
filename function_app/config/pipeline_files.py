"""Reading pipeline files: bounded, without YAML's traps, with errors that say where and what instead."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from function_app.config.pipelines import UNNAMED, Pipeline
from function_app.domain.errors import PipelineError
from horovod_lint import MAX_SCRIPT_BYTES, ScriptError

MAX_FILE_BYTES = 256 << 10
MAX_FILES = 1000
MAX_DEPTH = 20
SUFFIXES = (".yaml", ".yml")

_MEANINGS = {
    "missing": "is required",
    "extra_forbidden": "is unknown",
    "unexpected_keyword_argument": "is unknown",
}


def load_pipelines(folder: Path) -> dict[str, Pipeline]:
    """Return the pipelines of a folder by dataset. Raises PipelineError listing everything that is wrong."""
    if not folder.is_dir():
        raise PipelineError(f"{folder}: should be the folder with the pipeline files, is not there")
    paths = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)
    if len(paths) > MAX_FILES:
        raise PipelineError(f"{folder}: should hold at most {MAX_FILES} pipeline files, were {len(paths)}")
    loaded: dict[str, tuple[Path, Pipeline]] = {}
    problems: list[str] = []
    for path in paths:
        try:
            pipeline = load_pipeline(path)
        except PipelineError as error:
            problems += error.problems
            continue
        problems += _collisions(path, pipeline, loaded.values())
        if not has_script(folder, pipeline.train.script):
            problems.append(f"{path.name}: train.script: {pipeline.train.script} should be beside it, is not there")
        loaded.setdefault(pipeline.dataset, (path, pipeline))
    if problems:
        raise PipelineError(*problems)
    return {dataset: pipeline for dataset, (_, pipeline) in loaded.items()}


def load_pipeline(path: Path) -> Pipeline:
    """Read one file. Raises PipelineError listing everything that is wrong with it."""
    try:
        with path.open("rb") as stream:
            text = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise PipelineError(f"{path.name}: cannot be read: {error.strerror}") from error
    return parse_pipeline(text, path.name)


def parse_pipeline(text: bytes, name: str) -> Pipeline:
    """Read a pipeline from YAML; ``name`` is what errors call it. Raises PipelineError."""
    if len(text) > MAX_FILE_BYTES:
        raise PipelineError(f"{name}: should be at most {MAX_FILE_BYTES} bytes, was more")
    try:
        document = json.dumps(yaml.load(text, Loader=_Loader), allow_nan=False)  # noqa: S506 (a SafeLoader)
    except (yaml.YAMLError, TypeError, ValueError) as error:
        raise PipelineError(f"{name}: not a pipeline's YAML: {' '.join(str(error).split())[:500]}") from error
    try:
        return Pipeline.model_validate_json(document)
    except ValidationError as error:
        raise PipelineError(*(f"{name}: {problem}" for problem in _problems(error))) from error


def _collisions(path: Path, pipeline: Pipeline, others: Sequence[Any] | Any) -> Iterator[str]:
    for other_path, other in others:
        if other.dataset == pipeline.dataset:
            yield f"{path.name}: dataset: {pipeline.dataset} has a pipeline already, in {other_path.name}"
        elif other.pipeline == pipeline.pipeline:
            yield f"{path.name}: pipeline: the name {pipeline.pipeline} is taken, by {other_path.name}"


class _Loader(yaml.SafeLoader):
    """YAML without aliases (they grow without bound), duplicate keys (the last one would win) and dates."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.YAMLError(f"should have no alias, {_place(event.start_mark)}")
        if self.depth >= MAX_DEPTH:
            raise yaml.YAMLError(f"should be nested at most {MAX_DEPTH} deep")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 (PyYAML's own)
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:str":
                raise yaml.YAMLError(f"should have texts as keys, had {key.value!r}, {_place(key.start_mark)}")
            if key.value in seen:
                raise yaml.YAMLError(f"should have each key once, had {key.value!r} again, {_place(key.start_mark)}")
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _date_as_text(loader: _Loader, node: yaml.ScalarNode) -> str:
    return str(loader.construct_scalar(node))


_Loader.add_constructor("tag:yaml.org,2002:timestamp", _date_as_text)


def _place(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"


def _problems(error: ValidationError) -> Iterator[str]:
    """Word each of pydantic's findings: field path, what was expected, what was seen, what may have been meant."""
    for found in error.errors(include_url=False):
        location = [part for part in found["loc"] if part != "[key]"]
        message = _MEANINGS.get(found["type"]) or found["msg"].removeprefix("Value error, ")
        message = message.removeprefix(f"feature {UNNAMED}: ")
        seen = "" if found["type"] == "missing" or isinstance(found["input"], dict | list) else _shown(found["input"])
        hint = _did_you_mean(location) if found["type"] in ("extra_forbidden", "unexpected_keyword_argument") else ""
        yield f"{'.'.join(str(part) for part in location) or 'the file'}: {message}{seen}{hint}"


def _shown(value: Any) -> str:
    return f", was {str(value)[:100]!r}" if isinstance(value, str) else f", was {json.dumps(value)[:100]}"


def _did_you_mean(location: Sequence[int | str]) -> str:
    known = _field_names(Pipeline, location[:-1])
    close = difflib.get_close_matches(str(location[-1]), known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(known)}"


def _field_names(section: Any, location: Sequence[int | str]) -> list[str]:
    """Return the fields that are known at a place of the file."""
    for part in location:
        section = _inner(_fields(section).get(str(part), section))
    return list(_fields(section))


def _fields(section: Any) -> Mapping[str, Any]:
    if isinstance(section, type) and issubclass(section, BaseModel):
        return {info.alias or name: info.annotation for name, info in section.model_fields.items()}
    return {field.name: field.type for field in fields(section)} if is_dataclass(section) else {}


def _inner(annotation: Any) -> Any:
    """Return the section within ``tuple[Section, ...]``, ``dict[str, Section]`` or ``Section | None``."""
    if _fields(annotation):
        return annotation
    candidates = (_inner(argument) for argument in get_args(annotation))
    return next((candidate for candidate in candidates if _fields(candidate)), annotation)


SUFFIX = ".py"
"""Of a script; whatever else a pipeline names is a module of ours."""


def is_own_script(script: str) -> bool:
    """Whether a pipeline's ``train.script`` names a file of the user's."""
    return script.endswith(SUFFIX)


def has_script(folder: Path, script: str) -> bool:
    """Whether a pipeline's script is there, where it is one of the user's."""
    return not is_own_script(script) or (folder / script).is_file()


def read_script(folder: Path, script: str) -> bytes:
    """Return a script's bytes, one more than allowed at most. Raises ScriptError."""
    try:
        with (folder / script).open("rb") as stream:
            return stream.read(MAX_SCRIPT_BYTES + 1)
    except OSError as error:
        raise ScriptError(
            f"{script}: should be in the folder of the pipelines, cannot be read: {error.strerror}"
        ) from error


def no_scripts(script: str) -> bytes:
    """Stand in for a folder where nobody has one. Raises ScriptError."""
    raise ScriptError(f"{script}: should be in the folder of the pipelines, and there is none")
