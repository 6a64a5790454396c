"""Write docs/pipelines.md, the reference of every field of a pipeline file: `python -m tools.pipelines_page`.

Types, defaults and bounds come from the models; meanings from the docstrings beside their fields, or from `WORDS`.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import textwrap
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MAX_DEFAULT_CHARS = 60
"""A longer default is a whole section's; its fields have their own."""
PAGE = ROOT / "docs" / "pipelines.md"

HEAD = """# Pipeline files

Generated from `function_app/config/pipelines.py` by `python -m tools.pipelines_page`; a test fails when it is stale.

One YAML file for each dataset, in the folder that the setting `LANDFALL_PIPELINES_DIR` names. Nothing unknown is
taken, nothing is coerced, and every mistake of all files is reported at once, with file, field, what was expected and
what was seen. `pipelines/digits.yaml` is a complete example; `docs/attempts.md` says what failures lead to, and
`docs/lint.md` what a script of your own is given, has to leave, and is looked at for.
"""

WORDS: Mapping[str, str] = {
    "pipeline": "The pipeline's own name, in names, tags and stories: lower-case letters, digits, - and _.",
    "dataset": "Which dataset it is for: the first part of a blob's path. One pipeline for each.",
    "data": "What a version must be to be trained on.",
    "train": "How to train, and on what.",
    "notify": "Who is told: `topic`, or `webhook: SETTING` with the app setting that holds the address.",
    "watch": "When people are told that something takes too long.",
    "data.format": "`synthetic`: nothing is uploaded, the training draws `train.options.synthetic_records` itself.",
    "data.features": "What each feature of an example must be, by its key. Empty: framing and checksums only.",
    "data.label_feature": "Which feature is the label, for histograms and drift.",
    "data.images": "How thoroughly images are looked at.",
    "data.limits": "The most that anything read from a shard may ask for.",
    "data.drift": "What is done where a version differs much from the one the current model was trained on.",
    "data.counts": "Whether record counts must be stated beside the shards.",
    "data.small_shard_ratio": "A shard smaller than this part of the median is told of.",
    "data.images.decode": "Headers of all; the data of some, or of all.",
    "data.limits.max_inflated_bytes": "Of one shard.",
    "data.limits.max_footer_bytes": "Of a Parquet file.",
    "data.limits.max_columns": "Of a Parquet file.",
    "data.limits.max_row_groups": "Of a Parquet file.",
    "data.drift.action": "Nothing, people are told, or nothing is trained by itself.",
    "data.features.*.kind": "`bytes`, `int64` or `float`.",
    "data.features.*.shape": "Of a number, an image or a tensor; null is any size.",
    "data.features.*.required": "Whether every example must have it.",
    "data.features.*.encoding": "How bytes are to be read: an image of any or of one kind, raw numbers, or text.",
    "data.features.*.dtype": "Of raw bytes.",
    "data.features.*.minimum": "Of every value.",
    "data.features.*.maximum": "Of every value.",
    "data.features.*.allowed": "The only values, where they can be listed.",
    "train.script": "`training_job.train`, or `scripts/<file>.py` in the folder beside the pipelines.",
    "train.compute": "The Azure ML cluster.",
    "train.vm_size": "Its size: decides on the network's settings.",
    "train.num_nodes": "Nodes of the MPI job.",
    "train.processes_per_node": "One for each GPU, as a rule.",
    "train.timeout_s": "Azure ML ends the job after so long; the run is then classified as `timeout`.",
    "train.shm_size": "Shared memory of the container.",
    "train.options": "See below.",
    "train.overrides": "Which options a caller may ask for otherwise, and within which limits. Nothing else may be.",
    "train.overrides.*.minimum": "The least that may be asked for.",
    "train.overrides.*.maximum": "The most that may be asked for.",
    "train.overrides.*.allowed": "The only values that may be asked for; required for texts.",
    "train.environment_variables": "Of the job; they win over ours.",
    "attempts.max": "How many attempts a logical run has.",
    "attempts.other_sizes.*.compute": "The Azure ML cluster.",
    "attempts.other_sizes.*.vm_size": "Its size.",
    "attempts.other_sizes.*.price_per_node_hour": "What a node of it costs.",
    "register.model": "Name of the registered model.",
    "register.require": "The gate: every line must hold of the training report, or nothing is registered.",
    "register.require.*.metric": "Of the training report, as `val_accuracy`.",
    "register.require.*.at_least": "Its lower bound.",
    "register.require.*.at_most": "Its upper bound.",
}


def page() -> str:
    """Return the page as it should be."""
    return "\n".join([HEAD, *_sections()]).rstrip("\n") + "\n"


def fields() -> Iterator[tuple[str, str, str, str]]:
    """Yield path, type, default and meaning of every field, in the order of the file."""
    sys.path.insert(0, str(ROOT))  # the tools run from anywhere
    from function_app.config.pipelines import Pipeline

    schema = Pipeline.model_json_schema()
    yield from _fields("", schema, schema["$defs"], "Pipeline")


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    return 0


def _sections() -> Iterator[str]:
    section: str | None = None
    for path, kind, default, meaning in fields():
        parent = path.rpartition(".")[0]
        if parent != section:
            section = parent
            yield f"\n## {f'`{section}`' if section else 'The file'}\n"
            yield "| field | type | default | meaning |\n|---|---|---|---|"
        yield f"| `{path}` | {kind} | {default} | {meaning} |"


def _fields(
    prefix: str, section: Mapping[str, Any], defs: Mapping[str, Any], name: str
) -> Iterator[tuple[str, str, str, str]]:
    meanings, required = _docstrings(name), section.get("required", ())
    inner: list[tuple[str, str]] = []
    for field, schema in section["properties"].items():
        path = f"{prefix}{field}"
        default = "required" if field in required else _code(schema.get("default"))
        meaning = WORDS.get(path) or meanings.get(field) or meanings.get(f"{field}_") or ""
        yield (
            path,
            _kind(schema, defs),
            "see below" if len(default) > MAX_DEFAULT_CHARS else default,
            " ".join(meaning.split()),
        )
        inner += [
            (path + ("" if direct else ".*"), found)
            for found, direct in _inner(schema)
            if "properties" in defs[found]
        ]
    for path, found in inner:
        yield from _fields(f"{path}.", defs[found], defs, found)


def _inner(schema: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the sections that a field holds, and whether it is one itself."""
    if "$ref" in schema:
        yield schema["$ref"].rpartition("/")[2], True
    for each in schema.get("anyOf", ()):
        yield from _inner(each)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from ((name, False) for name, _ in _inner(schema[key]))


def _kind(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        found = defs[schema["$ref"].rpartition("/")[2]]
        return "section" if "properties" in found else _kind(found, defs)
    if "enum" in schema or "const" in schema:
        return ", ".join(_code(value) for value in schema.get("enum", [schema.get("const")]))
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(each, defs) for each in schema["anyOf"]))
    if schema.get("type") == "array" and isinstance(schema.get("items"), dict):
        return f"list of {_kind(schema['items'], defs)}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"mapping to {_kind(schema['additionalProperties'], defs)}"
    return str(schema.get("type", "any")) + _bounds(schema)


def _bounds(schema: Mapping[str, Any]) -> str:
    words = {"minimum": "≥ {}", "exclusiveMinimum": "> {}", "maximum": "≤ {}"}
    found = [text.format(schema[key]) for key, text in words.items() if key in schema]
    return f" {', '.join(found)}" if found else ""


def _code(value: Any) -> str:
    return f"`{value if isinstance(value, str) and value else json.dumps(value)}`"


def _docstrings(name: str) -> dict[str, str]:
    """Return the texts that stand below the fields of a class and of those that it extends."""
    from function_app.config import pipelines
    from shard_validation import DriftPolicy, ImagePolicy, Limits
    from shared.job_arguments import TrainingOptions

    known = {each.__name__: each for each in (DriftPolicy, ImagePolicy, Limits, TrainingOptions)}
    found: dict[str, str] = {}
    for ancestor in reversed((known.get(name) or getattr(pipelines, name)).__mro__):
        if ancestor.__module__.split(".")[0] in ("function_app", "shard_validation", "shared"):
            found |= _below_fields(ancestor)
    return found


def _below_fields(section: type) -> dict[str, str]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    found: dict[str, str] = {}
    for field, text in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            found[field.target.id] = str(ast.literal_eval(text.value)).replace("``", "`")
    return found


if __name__ == "__main__":
    sys.exit(main())
