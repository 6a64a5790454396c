"""Write the generated pages of docs/, pipelines.md, states.md and cli.md: `python -m tools.reference_pages`.

Types, defaults and bounds of pipeline fields come from the models, their meanings from the docstrings of the fields.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import textwrap
from collections.abc import Iterator, Mapping
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # so that the tool runs from any folder

import click  # noqa: E402 (needs the path above)

from cli.main import landfall  # noqa: E402
from function_app.config import clusters, layouts, pipelines, prices, recipients, registration  # noqa: E402
from function_app.domain.run_states import MEANINGS, SETTLED, TABLE, RunState  # noqa: E402
from shard_validation import DriftPolicy, ImagePolicy, Limits  # noqa: E402
from shared.job_arguments import TrainingOptions  # noqa: E402

PIPELINES_PAGE = ROOT / "docs" / "pipelines.md"
STATES_PAGE = ROOT / "docs" / "states.md"
CLI_PAGE = ROOT / "docs" / "cli.md"
MAX_DEFAULT_CHARS = 60
"""Longer defaults are not shown: they belong to whole sections, whose fields show their defaults."""
OTHER_SECTIONS = (
    DriftPolicy,
    ImagePolicy,
    Limits,
    TrainingOptions,
    clusters.Cluster,
    clusters.ClusterSize,
    layouts.Layout,
    prices.Prices,
    prices.SizePrice,
    prices.GpuFigures,
    prices.Scaling,
    recipients.QuietHours,
    recipients.Recipient,
    registration.Compare,
    registration.Requirement,
)
"""Sections that are not defined in the module of `Pipeline`."""
OUR_PACKAGES = ("function_app", "shard_validation", "shared")

PIPELINES_HEAD = """# Pipeline files

Generated from the models in `function_app/config`, `shard_validation` and `shared` by
`python -m tools.reference_pages`; a test fails if it is stale.

The folder that the setting `LANDFALL_PIPELINES_DIR` names contains one YAML file for each dataset, and
`clusters.yaml`, which describes the [clusters](#clustersyaml) that they name. Unknown fields are errors and values
are not converted. An invalid file takes only its own dataset out of service; every problem is reported with field,
value and line ([operations](operations.md)). Fields are also checked against each other: features, label, splits and
the model's images against the options, metrics, clusters, precision, prices and remedies. `landfall check` runs the
same checks before a deployment. `pipelines/digits.yaml` is a complete example. `docs/attempts.md` describes what
happens after a failure, and `docs/lint.md` how to train with your own script.
"""
CLI_HEAD = """# The command line

Generated from the commands by `python -m tools.reference_pages`; a test fails if it is stale.

`landfall` is `.venv/bin/landfall` in a clone. The README explains installation without a clone, and completion.
Commands that call a function app take its address from `--url` or `LANDFALL_URL` and its key from `--key` or
`LANDFALL_FUNCTION_KEY`; in a clone they find the running twin automatically. With `--json` a command prints the API's
response, or one object per line, and nothing else on standard output. Times are in UTC.

| exit status | meaning |
|---|---|
| 0 | done; for `validate`, `lint` and `check`: nothing is wrong |
| 1 | not done, with the reason on standard error; for `validate`, `lint` and `check`: something is wrong |
| 2 | wrong usage: an unknown command, argument or value, or a file that cannot be opened |
| 130, 143, 129 | stopped by Ctrl-C, SIGTERM or SIGHUP; 0 for `up` and `demo --keep`, which run until then |

The help of each command states its own.
"""
LAYOUTS = """
## Layouts

`data.layout` says how the files of a version are laid out, and when it is complete. With every layout, files may be
written by any program and their events come in any order, twice or never.

- `names`: files are directly in the version's folder and named like `train-00003-of-00128.parquet`. The version is
  complete when each split has all shards that their names state.
- `marker`: files have any names and may be in folders, such as `split=train/part-00000-….c000.snappy.parquet` or
  `train/day=3/x.parquet`. The version is complete when a file `_SUCCESS` was written after them and every file in
  storage is accepted.
- `manifest`: files as with `marker`. The version is complete when every file that a list in its folder names is
  accepted and matches the list.
- `delta`: the version's folder is a Delta table. Each commit of its log `_delta_log` says which files belong to it:
  once all of them are accepted and match the commit, they become the version's next generation. Status and the tags
  of the model name the version of the table.
- `quiet`: files as with `marker`. The version is assumed complete when every file in storage is accepted and none was
  written or deleted for `quiet_s`. Only the sweep checks this, so it takes up to one sweep interval longer. It is a
  guess, and status, history and the tags of the model say so: use it only if no marker can be written.

With all kinds except `names`, the split of a file is determined in this order: a folder named `train` or
`split=train`; the first of `patterns` that matches its path; with `manifest`, the split in a name with `-of-N`, then
the split that the list states; a draw by `shares`; or the only split. Files in a folder of a split that the pipeline
does not list, such as `test`, are ignored. So are names that begin with `_` or `.` or end in `.crc` (`_started_…`,
`_committed_…`, `_metadata`, everything below `_temporary`), and valid files without records. A split drawn by path
changes when files are renamed; `draw_by` keeps related files in one split.

```yaml
data:
  format: parquet
  splits: [train, validation]
  layout: {kind: marker, shares: {train: 0.9, validation: 0.1}, draw_by: patient}
```

A marker covers the files in and below its folder that were not written after it. Use one marker for the version, or
one for each split. A file that is written or deleted later starts the next generation, which closes with the next
marker, so a partial append or overwrite is never trained on. Copy the marker last: `azcopy` may copy it first, so
exclude it (`--exclude-pattern _SUCCESS`) and copy it separately. `landfall status` names the files that are not
accepted, and the marker if it is missing or older than a file. A version has at most 100,000 files, with paths of at
most 255 characters below its folder.

With `manifest`, the name of the list determines its format:

- `SHA256SUMS` or `MD5SUMS` (any name that contains `sha256` or `md5`): the output of `sha256sum` and `md5sum` of
  coreutils, also with `--binary` and `--tag`. In the version's folder: `find . -name '*.parquet' -exec sha256sum {} +
  > SHA256SUMS`.
- `dataset_info.json`, as TensorFlow Datasets writes it: the names of the shards, their numbers of records, and the
  bytes of each split (`numBytes`).
- `dataset.json`, as `landfall pack` writes it: names, sizes, numbers of records and CRC32C.
- `README.md` with the metadata of the Hugging Face Hub, as `push_to_hub` of `datasets` writes it: the files of each
  split from `data_files` in `configs` (names, or at most 32 patterns such as `data/train-*`), otherwise by the Hub's
  conventions; and `num_examples` of each split from `dataset_info`. `dataset_infos.json` states the same without
  `data_files`. If there are several configs, one must be named `default` or have `default: true`.
- `….csv`: UTF-8, with a header of `name` and any of `split`, `size`, `records`, `sha256`, `md5`, `crc32c`. An empty
  cell states nothing.

```yaml
data:
  format: parquet
  splits: [train, validation]
  layout: {kind: manifest, manifest: files.csv}
```

Files must match the list. A file that differs is rejected (`differs_from_list`) with the line that it contradicts, as
soon as both exist; a corrected file or list reverts the rejection. The split in the list is used if folder, patterns
and name do not determine one; if they do, it must be the same, otherwise the version stays open. The version also
stays open while the number of records of a split differs from `num_examples`; `num_bytes` and `download_size`
describe other forms of the data and are not compared. A list that moves a file to another split starts the next
generation, with the same files. Files that are not in the list do not belong to the version: `landfall status` names
them. Text files (`.md`, `.txt`, `.json`, `.yaml`, `.yml`, `.csv`, `.html`, `.pdf`) and files of splits that the
pipeline does not list may be in the list. Your own script must read the files that the manifest names, not all files
in the folder. A new list starts the next generation. If the list has a checksum for a file, it may be written before
or after the file; otherwise the file must not be newer than the list, as with a marker, so copy the list last. A list
has at most 32 MiB and 100,000 files; paths are relative to its folder, without `..`.

SHA-256 and MD5 are computed while a shard is validated (with a CSV, both). If the validation is paused, which happens
only above 256 MiB and after a minute, the shard is read once more to compute them. The blob property Content-MD5 is
not used, because uploaders can set it.

With `delta`, a table is written to the version's folder, as by
`write_deltalake("az://datasets/scans/main", frame, mode="append", partition_by=["split"])`, or it is uploaded:

- Each commit is a generation, in the order of the log; the history names the table's version.
  Files must match the sizes and numbers of records that the commit states, as with a list.
- The first closing starts a run; `on_change` decides whether later ones do. If several commits close together, such
  as those of a table that is uploaded with its history, only the newest is trained on. A commit that only rearranges
  files (`OPTIMIZE`) is a generation that starts no run.
- A commit is skipped if it names a file that a later commit removes and that was rejected or no longer exists
  (`VACUUM`), if it has no file of a split, or if more than 100 later ones wait. A commit that changes no file does
  not become a generation.
- If the first commits were deleted (log retention), the log is read from the first checkpoint that leads to the
  newest commit. A checkpoint closes as its table version, unless that version is already closed; earlier versions are
  ignored. It may have several parts; checkpoints of version 2 (`v2Checkpoint`) are not read.
- Copy the log after the files, and the first commit last (then the checkpoints), as `landfall upload` does; Delta
  writers already write the log last. A commit that is renamed into place (Spark on storage with folders) is found by
  the next sweep.
- Tables with a column mapping, files with deletion vectors (`REORG TABLE … APPLY (PURGE)` rewrites them) and other
  features that change what readers must do are not trained on; `landfall status` says which.

```yaml
data:
  format: parquet
  splits: [train, validation]
  layout: delta
on_change: train
```
"""
CLUSTERS_HEAD = """
## clusters.yaml

The Azure ML clusters, by the names that pipelines use; at most 20. Pipelines do not name hardware: a cluster gets the
first of its sizes that is available in the workspace's region and quota, so the same files work in every region.

```yaml
my-gpu:
  sizes:                               # in order of preference
    - vm_size: Standard_NC6s_v3
    - vm_size: Standard_NC24ads_A100_v4
  max_nodes: 4
```

`landfall publish` chooses the size when it creates the cluster, explains why a preferred size was skipped, and prints
the app setting `LANDFALL_CLUSTER_SIZES`. An existing cluster keeps its size if that is in the list. Size and priority
of a cluster cannot be changed: delete it, or use another name. Retired and unknown sizes are refused in the file, at
publication (by region) and before a submission. A pipeline is out of service while the setting does not name an
available size from its cluster's list. Options that depend on the GPU belong in `train.options_by_gpu`.
"""
PRICES_HEAD = """
## prices.yaml

Prices and published figures for [plans](plan.md), with their date, which each plan states. Replace them with your
own. A price in `clusters.yaml` takes precedence. If the file is missing or invalid, plans have no cost; pipelines do
not need it.
"""
STATES_HEAD = """# States of a run

Generated from `function_app/domain/run_states.py` by `python -m tools.reference_pages`; a test fails if it is stale.
A transition that is not in the table is refused under the row's ETag, logged with both states, and changes nothing.
"""
STATES_FOOT = """
For a settled run, `notified_at` is the time when all recipients were notified of its end. There is no such
notification for a suppressed run or for an attempt that another attempt continues; the run that replaces it has one.
If a version is given up with its suppressed run, `version_dropped` is sent.
"""


def main() -> int:
    """Write all pages."""
    PIPELINES_PAGE.write_text(pipelines_page(), encoding="utf-8")
    STATES_PAGE.write_text(states_page(), encoding="utf-8")
    CLI_PAGE.write_text(cli_page(), encoding="utf-8")
    return 0


def cli_page() -> str:
    """Return the command-line page: the help of every command, as in a terminal with 100 columns."""
    return CLI_HEAD + "".join(f"\n## {name}\n\n```text\n{text}\n```\n" for name, text in helps(landfall, "landfall"))


def helps(command: click.Command, name: str, above: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """Yield the name and the help of a command, and then of its subcommands."""
    context = click.Context(command, info_name=name, parent=above, **command.context_settings)
    context.terminal_width = 100
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            if found is not None:
                yield from helps(found, inner, context)


def pipelines_page() -> str:
    """Return the reference of all fields of a pipeline file."""
    lines = [PIPELINES_HEAD, *_sections(pipeline_fields()), LAYOUTS, CLUSTERS_HEAD, *_sections(cluster_fields())]
    lines += [PRICES_HEAD, *_sections(price_fields())]
    return "\n".join(lines).rstrip("\n") + "\n"


def states_page() -> str:
    """Return the table of run states and their transitions."""
    lines = [
        STATES_HEAD,
        "| state | meaning | settled |",
        "|---|---|---|",
        *(f"| `{state}` | {MEANINGS[state]} | {'yes' if state in SETTLED else ''} |" for state in RunState),
        "",
        "| from | to | who may cause it |",
        "|---|---|---|",
        *_transition_rows(),
    ]
    return "\n".join(lines) + "\n" + STATES_FOOT


def pipeline_fields() -> Iterator[tuple[str, str, str, str]]:
    """Yield path, type, default and meaning of every field, in the order of the file."""
    schema = pipelines.Pipeline.model_json_schema()
    yield from _fields("", schema, schema["$defs"], "Pipeline")


def cluster_fields() -> Iterator[tuple[str, str, str, str]]:
    """Yield path, type, default and meaning of every field of a cluster."""
    schema = clusters.Cluster.model_json_schema()
    yield from _fields("NAME.", schema, schema["$defs"], "Cluster")


def price_fields() -> Iterator[tuple[str, str, str, str]]:
    """Yield path, type, default and meaning of every field of prices.yaml."""
    schema = prices.Prices.model_json_schema()
    yield from _fields("", schema, schema["$defs"], "Prices")


def _transition_rows() -> Iterator[str]:
    for source, moves in groupby(TABLE, key=lambda move: move.source):
        for actors, same in groupby(moves, key=lambda move: move.actors):
            targets = ", ".join(f"`{move.target}`" for move in same)
            yield f"| `{source}` | {targets} | {', '.join(sorted(actors))} |"


def _sections(fields: Iterator[tuple[str, str, str, str]]) -> Iterator[str]:
    section: str | None = None
    for path, kind, default, meaning in fields:
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
        meaning = meanings.get(field) or meanings.get(f"{field}_") or ""
        shown = "see below" if len(default) > MAX_DEFAULT_CHARS else default
        yield path, _kind(schema, defs), shown, " ".join(meaning.split())
        inner += [
            (path + ("" if is_direct else ".*"), found)
            for found, is_direct in _inner_sections(schema)
            if "properties" in defs[found]
        ]
    for path, found in inner:
        yield from _fields(f"{path}.", defs[found], defs, found)


def _inner_sections(schema: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the sections that a field contains, and whether the field itself is the section."""
    if "$ref" in schema:
        yield schema["$ref"].rpartition("/")[2], True
    for each in schema.get("anyOf", ()):
        yield from _inner_sections(each)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from ((name, False) for name, _ in _inner_sections(schema[key]))


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
    """Return the docstrings of a section's fields, including inherited fields."""
    known = {each.__name__: each for each in OTHER_SECTIONS}
    found: dict[str, str] = {}
    for ancestor in reversed((known.get(name) or getattr(pipelines, name)).__mro__):
        if ancestor.__module__.split(".")[0] in OUR_PACKAGES:
            found |= _field_docstrings(ancestor)
    return found


def _field_docstrings(section: type) -> dict[str, str]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    found: dict[str, str] = {}
    for field, text in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            found[field.target.id] = str(ast.literal_eval(text.value)).replace("``", "`")
    return found


if __name__ == "__main__":
    sys.exit(main())
