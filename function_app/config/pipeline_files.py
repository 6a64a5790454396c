"""Read pipeline files, ``clusters.yaml`` and scripts: untrusted YAML within limits.

Errors name file, field and problem.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path, PurePath
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from function_app.config.clusters import CLUSTERS_FILE, MAX_CLUSTERS, Cluster, Clusters
from function_app.config.consistency import inconsistencies
from function_app.config.environments import read_environment
from function_app.config.fields import ClusterName
from function_app.config.own_files import read_files
from function_app.config.pipelines import MAX_RECIPIENTS, UNNAMED, Pipeline, is_own_script
from function_app.config.prices import PRICES_FILE, PlanFacts
from function_app.config.recipients import Recipient, RecipientField
from function_app.config.yaml_text import MAX_FILE_BYTES, lines_of, yaml_as_json
from function_app.domain.errors import PipelineError
from horovod_lint import MAX_SCRIPT_BYTES, OTHERS_CODE, ScriptError, ScriptFile
from shared.safe_text import MAX_VALUE_CHARS, setting_value

MAX_FILES = 1000
MAX_MODULES, MAX_MODULE_BYTES = 500, 32 << 20
"""Limits on the modules that are read for a script, as in `landfall lint`."""
SUFFIXES = (".yaml", ".yml")

_MEANINGS = {
    "missing": "is required",
    "extra_forbidden": "is unknown",
    "unexpected_keyword_argument": "is unknown",
}
_OF_TYPES = {"int_type": "int", "float_type": "float", "string_type": "str"}
"""Pydantic's error → the name that it gives to one of several types of a field."""
_MOVED = {
    "train.compute": 'is now train.cluster: write "cluster: {}" instead',
    "train.vm_size": f'belongs to the cluster: remove it, and list "- vm_size: {{}}" in its sizes in {CLUSTERS_FILE}',
    "train.processes_per_node": (
        "belongs to the cluster: remove it. One process is started for each GPU; for another number write "
        f'"processes_per_node: {{}}" beside the vm_size in {CLUSTERS_FILE}'
    ),
    "train.price_per_node_hour": (
        'belongs to the cluster: remove it, and write "price_per_node_hour: {}" beside the vm_size in '
        f"{CLUSTERS_FILE}"
    ),
    "attempts.other_sizes": (
        f"is now attempts.other_clusters: write the names of its computes, [NAME, ...], and each with its vm_size in "
        f"{CLUSTERS_FILE}"
    ),
}
"""Fields of earlier versions, and what to write instead; ``{}`` is the value."""
_CLUSTERS = Annotated[dict[ClusterName, Cluster], Field(min_length=1, max_length=MAX_CLUSTERS)]


NO_PIPELINES = frozenset({CLUSTERS_FILE, PRICES_FILE})
"""Files next to the pipelines that are not pipelines."""
UNIDENTIFIED = ""
"""Placeholder for the dataset of files whose dataset cannot be read."""

_DATASET_LINE = re.compile(
    rb"^dataset:[ \t]*(?P<quote>[\"']?)(?P<name>[a-z0-9][a-z0-9_-]{0,62})(?P=quote)[ \t\r]*(?:#.*)?$", re.MULTILINE
)
"""Finds the dataset of a file that cannot be parsed: the member of the outermost level, on a separate line."""


@dataclass(frozen=True, kw_only=True)
class PipelineFolder:
    """The content of a folder's files; every dataset is either in service or out of service."""

    pipelines: Mapping[str, Pipeline]
    """Dataset → pipeline."""
    files: Mapping[str, str]
    """Dataset → name of the file of its pipeline."""
    out_of_service: Mapping[str, tuple[str, ...]]
    """Dataset → why its pipeline cannot be used; UNIDENTIFIED for files that do not tell their dataset."""
    recipients: Mapping[str, tuple[Recipient, ...]] = field(default_factory=dict)
    """Dataset that is out of service → whom its files notify, as far as they can be read."""
    plan_facts: PlanFacts = field(default_factory=PlanFacts)

    def without(self, found: Mapping[str, tuple[str, ...]]) -> PipelineFolder:
        """Return the folder with more datasets out of service: dataset → problems, possibly none."""
        wrong = {dataset: problems for dataset, problems in found.items() if problems}
        return replace(
            self,
            pipelines={dataset: known for dataset, known in self.pipelines.items() if dataset not in wrong},
            out_of_service={**self.out_of_service, **wrong},
            recipients={**self.recipients, **{dataset: self.pipelines[dataset].notify for dataset in wrong}},
        )


def load_pipelines(folder: Path) -> dict[str, Pipeline]:
    """Return the pipelines in a folder by dataset. Raises PipelineError with the problems of all files."""
    read = read_pipelines(folder)
    if read.out_of_service:
        problems = (problem for problems in read.out_of_service.values() for problem in problems)
        raise PipelineError(*dict.fromkeys(problems))
    return dict(read.pipelines)


def read_pipelines(folder: Path, sizes: Mapping[str, str] | None = None) -> PipelineFolder:
    """Read every file of a folder. A wrong file takes only its own dataset out of service.

    ``sizes`` are those that the clusters have in this deployment. Raises PipelineError if there is no folder, or
    too many files in it.
    """
    if not folder.is_dir():
        raise PipelineError(f"{folder}: the folder with the pipeline files does not exist")
    from function_app.config.price_file import plan_facts  # it reads as this module does

    paths = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES and path.name not in NO_PIPELINES)
    if len(paths) > MAX_FILES:
        raise PipelineError(f"{folder}: must contain at most {MAX_FILES} pipeline files, got {len(paths)}")
    try:
        clusters: Clusters | PipelineError = load_clusters(folder, sizes)
    except PipelineError as error:
        clusters = error  # no pipeline can be used; the problem is reported for each
    read = [_read(path, clusters) for path in paths]
    loaded = [(one.path.name, one.pipeline) for one in read if one.pipeline is not None]
    problems: dict[str, list[str]] = {}
    for one in read:
        if one.problems:
            problems.setdefault(one.dataset, []).extend(one.problems)
    for dataset, file, collision in _collisions(loaded):
        problems.setdefault(dataset, []).extend(with_lines([f"{file}: {collision}"], folder / file))
    return PipelineFolder(
        pipelines={one.dataset: one for _, one in loaded if one.dataset not in problems},
        files={one.dataset: name for name, one in loaded},
        out_of_service={dataset: tuple(found) for dataset, found in problems.items()},
        recipients={
            dataset: tuple(dict.fromkeys(name for one in read if one.dataset == dataset for name in one.recipients))
            for dataset in problems
        },
        plan_facts=plan_facts(folder, clusters),
    )


@dataclass(frozen=True, kw_only=True)
class _ReadFile:
    """The content of one file."""

    path: Path
    dataset: str
    pipeline: Pipeline | None
    problems: Sequence[str]
    recipients: tuple[Recipient, ...]


def _read(path: Path, clusters: Clusters | PipelineError) -> _ReadFile:
    try:
        pipeline, problems = _on(read_pipeline(path).within(file_name=path.name), path, clusters)
    except PipelineError as error:
        return _ReadFile(
            path=path,
            dataset=_dataset_of(path),
            pipeline=None,
            problems=with_lines(error.problems, path),
            recipients=_recipients_of(path),
        )
    return _ReadFile(
        path=path, dataset=pipeline.dataset, pipeline=pipeline, problems=problems, recipients=pipeline.notify
    )


def _on(pipeline: Pipeline, path: Path, clusters: Clusters | PipelineError) -> tuple[Pipeline, list[str]]:
    """Return the pipeline with the machines of its clusters, and its problems."""
    problems: list[str] = []
    of_clusters: tuple[str, ...] = ()
    if isinstance(clusters, PipelineError):
        of_clusters = clusters.problems
    else:
        try:
            pipeline = pipeline.on(clusters)
        except PipelineError as error:
            problems += error.problems
    if (wanted := pipeline.train.environment) is not None:
        try:
            pipeline = pipeline.within(read_environment(path.parent, wanted))
        except PipelineError as error:
            problems += (f"train.environment: {problem}" for problem in error.problems)
    if pipeline.train.files:
        try:
            pipeline = pipeline.within(files=read_files(path.parent, pipeline.train.files))
        except PipelineError as error:
            problems += (f"train.files: {problem}" for problem in error.problems)
    names = (pipeline.train.cluster, *pipeline.attempts.other_clusters)
    machines = [one for name in names if (one := pipeline.machines_on(name)) is not None]
    problems += inconsistencies(pipeline, machines)
    problems += _missing_files(pipeline, path.parent)
    own = PipelineError(*(f"{path.name}: {problem}" for problem in problems)).problems  # safe to show
    return pipeline, [*of_clusters, *with_lines(own, path)]


def _missing_files(pipeline: Pipeline, folder: Path) -> Iterator[str]:
    """Yield each file of the pipeline that the code asset lacks; the asset contains the folder scripts."""
    if not has_script(folder, pipeline.train.script):
        yield f"train.script: {pipeline.train.script} does not exist in this folder"
    brought = frozenset[str]() if pipeline.files is None else pipeline.files.names
    module, weights = pipeline.train.options.model_module, pipeline.train.options.pretrained_weights
    has_module = has_script(folder, module if is_own_script(module) else "-.py")
    if module not in ("", *brought) and not module.startswith("/") and not has_module:
        yield (
            f"train.options.model_module: {module[:100]} does not exist in this folder; write "
            "scripts/<file>.py, or a file of train.files"
        )
    if weights not in ("", *brought) and not weights.startswith("/") and not _is_published(folder, weights):
        yield (
            f"train.options.pretrained_weights: {weights[:100]} does not exist in the job; list the file in "
            "train.files, put it into the folder scripts, or write an absolute path in the image"
        )


def _is_published(folder: Path, name: str) -> bool:
    """Whether a path, as the job sees it, names a file of the folder scripts, which is part of the code."""
    path = folder / name
    return name.startswith("scripts/") and path.is_file() and (folder / "scripts").resolve() in path.resolve().parents


def with_lines(problems: Iterable[str], path: Path) -> list[str]:
    """Return the problems of a file, each with the line of its field, or of the section that lacks the field."""
    try:
        lines = lines_of(content_of(path))
    except PipelineError:
        lines = {}
    return [f"{problem} (line {line})" if (line := _line(problem, lines)) else problem for problem in problems]


def _line(problem: str, lines: Mapping[str, int]) -> int | None:
    _, _, rest = problem.partition(": ")
    field_path = rest.partition(": ")[0]
    while field_path and field_path not in lines:
        field_path = field_path.rpartition(".")[0]
    return lines.get(field_path)


def _recipients_of(path: Path) -> tuple[Recipient, ...]:
    """Return the recipients that can be read from an invalid file."""
    try:
        members = json.loads(yaml_as_json(content_of(path), path.name))
    except PipelineError:
        return ()
    listed = members.get("notify") if isinstance(members, dict) else None
    found: list[Recipient] = []
    for entry in listed[:MAX_RECIPIENTS] if isinstance(listed, list) else ():
        with contextlib.suppress(ValidationError):
            found.append(TypeAdapter(RecipientField).validate_json(json.dumps(entry)))
    return tuple(found)


def load_clusters(folder: Path, sizes: Mapping[str, str] | None = None) -> Clusters:
    """Return the clusters that ``clusters.yaml`` describes. Raises PipelineError with all its problems."""
    path = folder / CLUSTERS_FILE
    if not path.is_file():
        raise PipelineError(
            f"{CLUSTERS_FILE}: does not exist beside the pipeline files; it describes the clusters that they name: "
            "see docs/pipelines.md"
        )
    try:
        return Clusters(clusters=parse_clusters(content_of(path), path.name), sizes=sizes)
    except PipelineError as error:
        raise PipelineError(*with_lines(error.problems, path)) from error


def folder_mark(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """Return names, times and sizes of the folder's files, to detect changes."""
    try:
        paths = [path for path in folder.rglob("*") if path.suffix != ".pyc" and path.is_file()]
    except OSError:
        return ()  # reading it reports why
    return tuple(sorted(mark for path in paths if (mark := _file_mark(path)) is not None))


def _file_mark(path: Path) -> tuple[str, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None  # removed since it was listed
    return str(path), status.st_mtime_ns, status.st_size


def _dataset_of(path: Path) -> str:
    """Return the dataset that an invalid file states; UNIDENTIFIED if it states none."""
    try:
        with path.open("rb") as stream:
            named = {match["name"].decode() for match in _DATASET_LINE.finditer(stream.read(MAX_FILE_BYTES))}
    except OSError:
        named = set()
    return named.pop() if len(named) == 1 else UNIDENTIFIED


def load_pipeline(path: Path) -> Pipeline:
    """Return the pipeline in one file, on the clusters beside it. Raises PipelineError with all problems."""
    pipeline, problems = _on(read_pipeline(path), path, load_clusters(path.parent))
    if problems:
        raise PipelineError(*problems)
    return pipeline


def read_pipeline(path: Path) -> Pipeline:
    """Return the pipeline in one file, not yet on machines. Raises PipelineError with all problems."""
    return parse_pipeline(content_of(path), path.name)


def content_of(path: Path) -> bytes:
    """Return a file's content, at most one byte more than allowed. Raises PipelineError."""
    try:
        with path.open("rb") as stream:
            return stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise PipelineError(f"{path.name}: cannot be read: {error.strerror}") from error


def parse_pipeline(text: bytes, name: str) -> Pipeline:
    """Return the pipeline in a YAML text, not yet on machines; errors call it ``name``. Raises PipelineError."""
    document = yaml_as_json(text, name)
    try:
        return Pipeline.model_validate_json(document).with_label()
    except ValidationError as error:
        raise PipelineError(*(f"{name}: {problem}" for problem in worded(error, Pipeline))) from error


def parse_clusters(text: bytes, name: str) -> dict[str, Cluster]:
    """Return the clusters in a YAML text; errors call it ``name``. Raises PipelineError."""
    document = yaml_as_json(text, name)
    try:
        return TypeAdapter(_CLUSTERS).validate_json(document, strict=True)
    except ValidationError as error:
        raise PipelineError(*(f"{name}: {problem}" for problem in worded(error, Cluster))) from error


def _collisions(loaded: Sequence[tuple[str, Pipeline]]) -> Iterator[tuple[str, str, str]]:
    """Yield dataset, file and problem where two files have one dataset, or one name.

    If two files have the same dataset, neither is used, because it is unclear which is meant. If two pipelines have
    the same name, the one whose file has that name keeps it, so a copy does not stop its original.
    """
    datasets: dict[str, str] = {}
    names: dict[str, str] = {}
    for file, pipeline in sorted(loaded, key=lambda entry: (Path(entry[0]).stem != entry[1].pipeline, entry[0])):
        if pipeline.dataset in datasets:
            first = datasets[pipeline.dataset]
            problem = f"dataset: {first} already has the pipeline of dataset {pipeline.dataset}"
            yield pipeline.dataset, file, problem
        elif pipeline.pipeline in names:
            first = names[pipeline.pipeline]
            yield pipeline.dataset, file, f"pipeline: {first} already uses the name {pipeline.pipeline}"
        datasets.setdefault(pipeline.dataset, file)
        names.setdefault(pipeline.pipeline, file)


def worded(error: ValidationError, section: Any) -> Iterator[str]:
    """Yield one message for each pydantic error: field path, problem, value, and a suggestion for unknown fields."""
    for found in _united(error):
        location = [part for part in found["loc"] if part != "[key]"]
        field = ".".join(map(str, location))
        if field in _MOVED and found["type"] == "extra_forbidden":
            value = found["input"] if isinstance(found["input"], str | int | float) else "…"
            stated = setting_value(str(value)).strip("'")
            yield f"{field}: {_MOVED[field].format(stated)}"
            continue
        message = _MEANINGS.get(found["type"]) or found["msg"].replace("Input should be", "must be")
        message = message.removeprefix("Value error, ").removeprefix(f"feature {UNNAMED}: ")
        is_secret = location[:1] == ["notify"]  # perhaps an address, put where its setting's name belongs
        is_omitted = is_secret or found["type"] == "missing" or isinstance(found["input"], dict | list)
        seen = "" if is_omitted else _shown(found["input"])
        is_unknown = found["type"] in ("extra_forbidden", "unexpected_keyword_argument")
        hint = _did_you_mean(section, location) if is_unknown else ""
        path = [str(part) for part in location]
        suspects = {0, len(path) - 1} if is_unknown or "[key]" in found["loc"] else {0}
        for place in suspects & set(range(len(path))):
            if len(path[place]) > MAX_VALUE_CHARS:
                path[place] = f"a name of {len(path[place])} characters"  # perhaps a key, where a name belongs
        yield f"{'.'.join(path) or 'the file'}: {message}{seen}{hint}"


def _united(error: ValidationError) -> Iterator[Any]:
    """Yield pydantic's errors, with one for all the types that a value may have instead of one for each."""
    every = error.errors(include_url=False)
    texts = {found["loc"][:-1] for found in every if found["loc"][-1:] == ("str",)}
    united: set[tuple[int | str, ...]] = set()
    for found in every:
        if found["type"] not in _OF_TYPES or found["loc"][-1] != _OF_TYPES[found["type"]]:
            yield found
        elif (place := found["loc"][:-1]) not in united:
            united.add(place)
            yield {**found, "loc": place, "msg": f"must be a number{' or a text' if place in texts else ''}"}


def _shown(value: Any) -> str:
    return f", got {setting_value(value) if isinstance(value, str) else json.dumps(value)[:100]}"


def _did_you_mean(section: Any, location: Sequence[int | str]) -> str:
    known = _field_names(section, location[:-1])
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
    candidates = (_inner(argument) for argument in _arguments(annotation))
    return next((candidate for candidate in candidates if _fields(candidate)), annotation)


def _arguments(annotation: Any) -> tuple[Any, ...]:
    """Return the types inside a type, without what ``Annotated`` adds to it."""
    return get_args(annotation)[:1] if get_origin(annotation) is Annotated else get_args(annotation)


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


def read_modules(folder: Path, files: Sequence[str]) -> dict[PurePath, ScriptFile]:
    """Return what a script may import: the modules in the folder ``scripts``, and those among a pipeline's files.

    They are found by their paths below the folder of the pipelines, as if that were the root. Raises ScriptError for
    more than the limits; a module that cannot be read is left out, as one that cannot be parsed is.
    """
    found: dict[PurePath, ScriptFile] = {}
    num_bytes = 0
    for path in _modules_in(folder, ("scripts", *files)):
        name = path.relative_to(folder).as_posix()
        with contextlib.suppress(ScriptError):
            content = read_script(folder, name)
            num_bytes += len(content)
            found[PurePath("/", name)] = ScriptFile(path=PurePath("/", name), name=name, content=content)
        if len(found) > MAX_MODULES or num_bytes > MAX_MODULE_BYTES:
            raise ScriptError(
                f"scripts: this folder and train.files have more than {MAX_MODULES} modules or "
                f"{MAX_MODULE_BYTES >> 20} MiB of them; move those that the script does not import elsewhere"
            )
    return found


def _modules_in(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    """Yield the Python files of that name or below it, without folders of other people's code."""
    for name in names:
        path = folder / name
        if path.suffix == ".py" and path.is_file():
            yield path
        for parent, folders, files in os.walk(path):
            folders[:] = sorted(one for one in folders if one[:1] != "." and one not in OTHERS_CODE)
            yield from (
                one for file in sorted(files) if (one := Path(parent, file)).suffix == ".py" and one.is_file()
            )


def no_modules(_files: Sequence[str]) -> dict[PurePath, ScriptFile]:
    """Return none; stands in for ``read_modules`` where no folder exists."""
    return {}


def no_scripts(script: str) -> bytes:
    """Raise ScriptError; stands in for ``read_script`` where no folder exists."""
    raise ScriptError(f"{script}: cannot be read, because there is no folder of pipelines")
