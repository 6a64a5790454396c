"""Read pipeline files and scripts: untrusted YAML within limits, and errors that name file, field and problem."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from function_app.config.pipelines import UNNAMED, Pipeline, is_own_script
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
    """Return the pipelines in a folder by dataset. Raises PipelineError with the problems of all files."""
    if not folder.is_dir():
        raise PipelineError(f"{folder}: the folder with the pipeline files does not exist")
    paths = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)
    if len(paths) > MAX_FILES:
        raise PipelineError(f"{folder}: must contain at most {MAX_FILES} pipeline files, got {len(paths)}")
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
            problems.append(f"{path.name}: train.script: {pipeline.train.script} does not exist in this folder")
        loaded.setdefault(pipeline.dataset, (path, pipeline))
    if problems:
        raise PipelineError(*problems)
    return {dataset: pipeline for dataset, (_, pipeline) in loaded.items()}


def load_pipeline(path: Path) -> Pipeline:
    """Return the pipeline in one file. Raises PipelineError with all its problems."""
    try:
        with path.open("rb") as stream:
            text = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise PipelineError(f"{path.name}: cannot be read: {error.strerror}") from error
    return parse_pipeline(text, path.name)


def parse_pipeline(text: bytes, name: str) -> Pipeline:
    """Return the pipeline in a YAML text; errors call it ``name``. Raises PipelineError."""
    if len(text) > MAX_FILE_BYTES:
        raise PipelineError(f"{name}: the file is larger than {MAX_FILE_BYTES} bytes")
    try:
        document = json.dumps(yaml.load(text, Loader=_Loader), allow_nan=False)  # noqa: S506 (a SafeLoader)
    except (yaml.YAMLError, TypeError, ValueError) as error:
        raise PipelineError(f"{name}: not valid YAML: {' '.join(str(error).split())[:500]}") from error
    try:
        return Pipeline.model_validate_json(document)
    except ValidationError as error:
        raise PipelineError(*(f"{name}: {problem}" for problem in _problems(error))) from error


def _collisions(path: Path, pipeline: Pipeline, others: Sequence[Any] | Any) -> Iterator[str]:
    for other_path, other in others:
        if other.dataset == pipeline.dataset:
            yield f"{path.name}: dataset: {other_path.name} already has the pipeline of dataset {pipeline.dataset}"
        elif other.pipeline == pipeline.pipeline:
            yield f"{path.name}: pipeline: {other_path.name} already uses the name {pipeline.pipeline}"


class _Loader(yaml.SafeLoader):
    """YAML without aliases (their expansion is not bounded), duplicate keys (the last one would win) and dates."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.YAMLError(f"aliases are not allowed, {_place(event.start_mark)}")
        if self.depth >= MAX_DEPTH:
            raise yaml.YAMLError(f"nested more than {MAX_DEPTH} levels deep")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 (PyYAML's own)
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, LookupError) as error:  # PyYAML's own, where a value does not fit its tag
            tag = node.tag.removeprefix("tag:yaml.org,2002:")
            raise yaml.YAMLError(
                f"{node.value[:100]!r} is not a value of !!{tag}, {_place(node.start_mark)}"
            ) from error

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:  # noqa: FBT001, FBT002 (PyYAML's own)
        if not isinstance(node, yaml.MappingNode):
            raise yaml.YAMLError(f"expected a mapping, {_place(node.start_mark)}")
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:str":
                raise yaml.YAMLError(f"keys must be texts, got {key.value!r}, {_place(key.start_mark)}")
            if key.value in seen:
                raise yaml.YAMLError(f"key {key.value!r} is repeated, {_place(key.start_mark)}")
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _date_as_text(loader: _Loader, node: yaml.ScalarNode) -> str:
    return str(loader.construct_scalar(node))


_Loader.add_constructor("tag:yaml.org,2002:timestamp", _date_as_text)


def _place(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"


def _problems(error: ValidationError) -> Iterator[str]:
    """Yield one message for each pydantic error: field path, problem, value, and a suggestion for unknown fields."""
    for found in error.errors(include_url=False):
        location = [part for part in found["loc"] if part != "[key]"]
        message = _MEANINGS.get(found["type"]) or found["msg"].replace("Input should be", "must be")
        message = message.removeprefix("Value error, ").removeprefix(f"feature {UNNAMED}: ")
        seen = "" if found["type"] == "missing" or isinstance(found["input"], dict | list) else _shown(found["input"])
        hint = _did_you_mean(location) if found["type"] in ("extra_forbidden", "unexpected_keyword_argument") else ""
        yield f"{'.'.join(str(part) for part in location) or 'the file'}: {message}{seen}{hint}"


def _shown(value: Any) -> str:
    return f", got {str(value)[:100]!r}" if isinstance(value, str) else f", got {json.dumps(value)[:100]}"


def _did_you_mean(location: Sequence[int | str]) -> str:
    known = _field_names(Pipeline, location[:-1])
    close = difflib.get_close_matches(str(location[-1]), known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known fields: {', '.join(known)}"


def _field_names(section: Any, location: Sequence[int | str]) -> list[str]:
    """Return the known fields at a place in the file."""
    for part in location:
        section = _inner(_fields(section).get(str(part), section))
    return list(_fields(section))


def _fields(section: Any) -> Mapping[str, Any]:
    if isinstance(section, type) and issubclass(section, BaseModel):
        return {info.alias or name: info.annotation for name, info in section.model_fields.items()}
    return {field.name: field.type for field in fields(section)} if is_dataclass(section) else {}


def _inner(annotation: Any) -> Any:
    """Return the section inside ``tuple[Section, ...]``, ``dict[str, Section]`` or ``Section | None``."""
    if _fields(annotation):
        return annotation
    candidates = (_inner(argument) for argument in get_args(annotation))
    return next((candidate for candidate in candidates if _fields(candidate)), annotation)


def has_script(folder: Path, script: str) -> bool:
    """Whether a pipeline's script exists; Landfall's own module always does."""
    return not is_own_script(script) or (folder / script).is_file()


def read_script(folder: Path, script: str) -> bytes:
    """Return a script's bytes, at most one more than allowed. Raises ScriptError."""
    try:
        with (folder / script).open("rb") as stream:
            return stream.read(MAX_SCRIPT_BYTES + 1)
    except OSError as error:
        raise ScriptError(f"{script}: cannot be read from the folder of the pipelines: {error.strerror}") from error


def no_scripts(script: str) -> bytes:
    """Raise ScriptError; stands in for ``read_script`` where no folder exists."""
    raise ScriptError(f"{script}: cannot be read, because there is no folder of pipelines")
