"""``landfall status``, ``why``, ``datasets`` and ``pipelines``: states, history and problems."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any
from urllib.parse import quote

import click

from cli.options import DATASET_VERSION, as_json_option, path_segment, running_twin_of_this_clone, with_api
from cli.remote.api_client import ApiClient, shown_time
from cli.remote.watching import describe_overview, follow, now
from cli.screen import answer, show
from shared.safe_text import counted, readable_bytes
from shared.shard_names import is_among

MAX_LISTED = 20
MOST_VERSIONS = 1000
"""Versions that the API returns at most with one answer."""
STYLES = {
    "suppressed": "yellow",
    "rejected": "red",
    "failed": "red",
    "lost": "red",
    "dead": "red",
    "stalled": "yellow",
}
"""A word in an entry's action → its style; every other action is plain."""
FULL_TIME = "2026-11-20 12:00:00"
MIN_TEXT_COLUMNS = 60
"""A run's name fits into these columns; a narrower terminal shows texts below their time."""


@click.command(epilog="Example: landfall status digits/2026-11-20 --watch")
@click.argument("target", type=DATASET_VERSION, metavar="[DATASET/VERSION]", required=False)
@click.option(
    "--watch",
    "is_watched",
    is_flag=True,
    help="Show it again after each change, until the version is complete and its runs have ended, or Ctrl-C.",
)
@click.option(
    "--verdict",
    type=click.Choice(["accepted", "rejected", "all"]),
    help="List every shard with this verdict, with all reasons (default: a summary of the version).",
)
@as_json_option
@with_api
def status(
    client: ApiClient, target: tuple[str, str] | None, *, is_watched: bool, verdict: str | None, as_json: bool
) -> None:
    """Show a dataset version: missing shards, rejected shards and the reasons, statistics of its data, its runs.

    Without an argument, show an overview: what needs a person, which runs are active or waiting, and today's uploads.
    """
    if verdict is not None:
        if target is None or is_watched:
            raise click.UsageError("--verdict needs a DATASET/VERSION, and cannot be combined with --watch.")
        _show_shards(client, target, {} if verdict == "all" else {"state": verdict}, as_json=as_json)
        return

    def ask() -> dict[str, Any]:
        return client.get("/api/overview") if target is None else client.dataset_version(*target)

    def tell(found: Mapping[str, Any]) -> None:
        lines = describe_overview(found) if target is None else describe_version(found)
        if is_watched and not as_json:
            click.clear()  # on a terminal only
            click.echo(f"{shown_time(now())}")
        if as_json:
            click.echo(json.dumps(found, indent=None if is_watched else 2))
        else:
            show(lines)

    if is_watched:
        follow(ask, tell)
    else:
        tell(ask())


def _show_shards(client: ApiClient, target: tuple[str, str], filters: Mapping[str, str], *, as_json: bool) -> None:
    path = f"/api/datasets/{quote(target[0], safe='')}/{quote(target[1], safe='')}/shards"
    found = list(client.pages(path, "shards", limit=1000, **filters))
    if as_json:
        click.echo(json.dumps({"shards": found}, indent=2))
        return
    for shard in found:
        size = f"{counted(shard['num_records'], 'record')}, {readable_bytes(shard['size_bytes'])}"
        show([f"{shard['state']}  {shard['name']}  {size}"])
        show(f"  {reason_text([reason])}" for reason in shard["reasons"])
    if not found:
        verdict = filters.get("state")
        click.echo(f"No shard of {'/'.join(target)} {f'was {verdict}' if verdict else 'has a verdict'}.")


def describe_version(version: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that describe a version, as the API returns it."""
    name = f"{version['dataset']}/{version['version']}"
    generation = version["generation"]
    if generation is None:
        yield f"{name}: open"
    else:
        size = f"{counted(generation['num_shards'], 'shard')}, {counted(generation['num_records'], 'record')}"
        guess = f"; this is a guess: {generation['guess']}" if generation.get("guess") else ""
        yield f"{name}: complete since {shown_time(generation['closed_at'])}, {size}{guess}"
        if generation.get("table_version") is not None:
            yield f"  version {generation['table_version']} of the Delta table, as generation {generation['number']}"
        yield f"  fingerprint {generation['fingerprint']}"
    for split_name, split in version["splits"].items():
        yield from _split(split_name, split)
    if version.get("hold"):
        yield f"  on hold: {version['hold']}; upload a shard again, or: landfall release {name}"
    for reason in version.get("refusal", ())[:MAX_LISTED]:
        yield f"  refused as a set: {reason}"
    yield from _drift(version)
    for run in version["runs"]:
        note = run.get("waiting") or (run.get("reason") if run["state"] == "suppressed" else None)
        sweep = f" (run {run['sweep_number']} of option sweep {run['sweep_id']})" if run.get("sweep_id") else ""
        yield f"  run {run['run_id']}: {run['state']}{sweep}{f': {note}' if note else ''}"


def _split(name: str, split: Mapping[str, Any]) -> Iterator[str]:
    total = "?" if split["num_shards"] is None else f"{split['num_shards']:,}"
    yield f"  {name}: {split['accepted']:,} of {total} shards accepted"
    if split.get("statistics") and split["statistics"]["num_records"]:
        yield from _statistics(split["statistics"])
    for rejected in split["rejected"][:MAX_LISTED]:
        name, why = rejected["shard"], reason_text(rejected["reasons"])
        yield f"    rejected {why if why.startswith(name) else f'{name}: {why}'}"
    names = [rejected["shard"] for rejected in split["rejected"]]
    absent = [missing for missing in split["missing"] if not is_among(missing, names)]
    for missing in absent[:MAX_LISTED]:
        yield f"    missing {missing}"
    num_absent = split["num_missing"] - len(split["missing"]) + len(absent)
    if num_absent > MAX_LISTED:
        yield f"    … {num_absent - MAX_LISTED:,} more are missing"
    if unlisted := split.get("unlisted"):
        more = f" and {split['num_unlisted'] - MAX_LISTED:,} more" if split["num_unlisted"] > MAX_LISTED else ""
        yield f"    in storage, but not part of the version: {', '.join(unlisted[:MAX_LISTED])}{more}"


def _statistics(statistics: Mapping[str, Any]) -> Iterator[str]:
    yield f"    {counted(statistics['num_records'], 'record')}, {readable_bytes(statistics['size_bytes'])}"
    for name, seen in statistics["features"].items():
        is_label = name == statistics["label_feature"]
        facts = [
            _labels(statistics["labels"], statistics["other_labels"]) if is_label else _values(seen),
            _range(seen),
        ]
        if known := "; ".join(fact for fact in facts if fact):
            yield f"    {name}: {known}"


def _labels(labels: Mapping[str, int], other: int) -> str:
    """Describe the distribution of labels: the rarest and the most frequent one."""
    if not labels:
        return ""
    total = sum(labels.values()) + other
    rarest, commonest = min(labels, key=labels.__getitem__), max(labels, key=labels.__getitem__)
    if len(labels) > 1 and labels[rarest] == labels[commonest]:
        shares = f"each {labels[rarest] / total:.1%}"
    else:
        shares = f"{rarest} ({labels[rarest] / total:.1%}) to {commonest} ({labels[commonest] / total:.1%})"
    return f"{len(labels):,}{' and more' if other else ''} labels, {shares} of the records"


def _values(seen: Mapping[str, Any]) -> str:
    if not seen["most_frequent"]:
        return ""
    value, times = next(iter(seen["most_frequent"].items()))
    if seen["num_distinct"] == 1 and not seen["other"]:
        return f"always {value}"
    more = " and more" if seen["other"] else ""
    return f"{seen['num_distinct']:,}{more} values, most often {value} ({times:,} times)"


def _range(seen: Mapping[str, Any]) -> str:
    unit = " bytes" if seen["kind"] == "bytes" else ""
    if seen["minimum"] is None:
        return ""
    if seen["minimum"] == seen["maximum"]:
        return f"{seen['minimum']:,g}{unit}"
    return f"{seen['minimum']:,g} to {seen['maximum']:,g}{unit}"


def _drift(version: Mapping[str, Any]) -> Iterator[str]:
    """Yield every drift figure beside its threshold, then the figures that exceed it in words."""
    if version.get("drift_reference"):
        yield f"  compared with {version['drift_reference']}, on which the current model of that time was trained:"
    for measure in version.get("drift_measures", ())[:MAX_LISTED]:
        verdict = "TOO FAR" if measure["exceeds"] else "within"
        what = f"{measure['split']} {measure['code'].removeprefix('drift_')}"
        yield f"    {what}: {measure['value']:.3f}, {verdict} {measure['threshold']:.3f}"
    for reason in version.get("drift", ())[:MAX_LISTED]:
        yield f"    {reason}"


def reason_text(reasons: Sequence[Mapping[str, Any]]) -> str:
    """Describe why a shard was rejected: the first reason, which names its place, and the number of further ones."""
    if not reasons:
        return "no reason on record"
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return f"{reasons[0]['message']}{more}"


@click.command(epilog="Example: landfall why digits/2026-11-20")
@click.argument("subject", metavar="DATASET/VERSION|RUN|BLOB")
@click.option(
    "--trace",
    "as_trace",
    is_flag=True,
    help="Show the trace of the whole dataset version as a tree with times (default: show the history).",
)
@as_json_option
@with_api
def why(client: ApiClient, subject: str, *, as_trace: bool, as_json: bool) -> None:
    """Show the history of a dataset version, a run or a blob and what it waits for.

    A blob is named by its path in the data container, such as digits/2026-11-20/train-00000-of-00008.tfrecord.
    """
    subject = subject.strip("/")
    if not subject or {".", ".."} & set(subject.split("/")):  # these would lead to another path of the API
        raise click.UsageError(f"{subject!r} is not a dataset version, a run or a blob.")
    if as_trace:
        show_trace(client, subject, as_json=as_json)
        return
    history = client.get(f"/api/why/{quote(subject, safe='/')}")
    if as_json:
        click.echo(json.dumps(history, indent=2))
        return
    show_history(history)


def show_trace(client: ApiClient, subject: str, *, as_json: bool) -> None:
    """Print the trace of the version that a subject belongs to; for a deployment, print the query that shows it."""
    from cli.traces import query, read_trace, tree

    version = "/".join(subject.split("/")[:2])
    if "/" not in version:
        run = client.run(subject)
        version = f"{run['dataset']}/{run['version']}"
    twin = running_twin_of_this_clone()
    if twin is None or twin.functions_url != client.url:
        if as_json:
            click.echo(json.dumps({"query": query(version)}, indent=2))
        else:
            click.echo("This function app sends its traces to Application Insights. Open its Logs and run:")
            click.echo(f"  {query(version)}")
        return
    spans = read_trace(twin.traces, version)
    click.echo(
        json.dumps([asdict(span) for span in spans], indent=2, default=str)
        if as_json
        else "\n".join(tree(spans, version))
    )


def show_history(history: Mapping[str, Any]) -> None:
    """Print a history: a table of its entries, then what is awaited."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    whole = not console.is_terminal  # in a file and for grep, an entry stays on one line
    console.print(Text(f"{history['kind']} {history['subject']}", style="bold"), soft_wrap=whole)
    if history["num_omitted"]:
        console.print(f"({history['num_omitted']:,} older entries are left out)")
    rows = list(_rows(history))
    widest = max((len(action) for _, action, _ in rows), default=0)
    is_narrow = console.width < len(FULL_TIME) + widest + MIN_TEXT_COLUMNS
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for time, action, text in rows:
        styled = Text(action, style=_style(action))
        if whole:
            console.print(Text(f"{time}  {action:<{widest}}  {text}"), soft_wrap=True)
        elif is_narrow:
            console.print(Text.assemble(f"{time}  ", styled))
            console.print(Padding(Text(text), (0, 0, 0, 4)))
        else:
            table.add_row(time, styled, Text(text))
    if table.row_count:
        console.print(table)
    console.print(Text("awaited now:" if history["awaited"] else "nothing is awaited", style="bold"))
    for text in history["awaited"]:
        console.print(Padding(Text(text), (0, 0, 0, 2)) if not whole else Text(f"  {text}"), soft_wrap=whole)


def _rows(history: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (time, action, text), with consecutive repetitions in one row."""
    entries = history["lines"]
    for (action, text), same in groupby(entries, key=lambda entry: (entry["action"], _text(entry, history))):
        times = [shown_time(entry["at"]) for entry in same]
        again = f" ({len(times)} times, the last {times[-1]})" if len(times) > 1 else ""
        yield times[0], action, text + again


def _text(entry: Mapping[str, Any], history: Mapping[str, Any]) -> str:
    """Return an entry's reason, preceded by its subject if that is only a part of the history's subject."""
    reason, subject = str(entry["reason"]), str(entry["subject"])
    name = subject.removeprefix(history["subject"] + "/")
    return reason if subject == history["subject"] or reason.startswith(name) else f"{name}: {reason}"


def _style(action: str) -> str:
    return next((style for word, style in STYLES.items() if word in action), "")


@click.command(epilog="Example: landfall datasets digits")
@click.argument("dataset", required=False)
@click.option(
    "--after", metavar="NAME", help="List entries after this version, or dataset (default: from the first)."
)
@as_json_option
@with_api
def datasets(client: ApiClient, dataset: str | None, after: str | None, *, as_json: bool) -> None:
    """List the datasets, or the versions of one of them."""
    path = "/api/datasets" if dataset is None else f"/api/datasets/{path_segment(dataset, 'dataset')}"
    most = {} if dataset is None else {"limit": MOST_VERSIONS}
    found = client.get(path, **most, **({"after": after} if after else {}))
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    show(_datasets(found) if dataset is None else _versions(found))


def _datasets(found: Mapping[str, Any]) -> Iterator[str]:
    for each in found["datasets"]:
        latest = each["latest"]
        said = (
            f"{latest['version']}, complete since {shown_time(latest['closed_at'])}"
            if latest
            else "no complete version yet"
        )
        yield f"{each['dataset']:<24}  {said}"
    if not found["datasets"]:
        yield "No pipeline is in service: `landfall pipelines` says why."
    if found["next"]:
        yield f"There are more: add --after {found['datasets'][-1]['dataset']}"


def _versions(found: Mapping[str, Any]) -> Iterator[str]:
    for each in found["versions"]:
        state = (
            f"generation {each['generation']}, complete since {shown_time(each['closed_at'])}"
            if each["closed_at"]
            else "open"
        )
        yield f"{found['dataset']}/{each['version']}  {state}"
    if not found["versions"]:
        yield f"No version of dataset {found['dataset']} has been uploaded yet."
    if found["next"]:
        yield f"There are more: add --after {found['versions'][-1]['version']}"


@click.command(epilog="Example: landfall pipelines")
@as_json_option
@with_api
def pipelines(client: ApiClient, *, as_json: bool) -> None:
    """List the pipelines, and what is wrong with those that are out of service."""
    found = client.pipelines()
    answer({"pipelines": found}, _pipelines(found), as_json=as_json)


def _pipelines(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not found:
        yield "There are no pipelines. `landfall init` writes one."
    for each in found:
        if each["state"] == "out_of_service":
            yield f"{each['dataset'] or 'a file whose dataset cannot be read'}: out of service"
            yield from (f"  {problem}" for problem in each["problems"])
        else:
            splits = ", ".join(each["splits"] or ["none"])
            yield f"{each['dataset']}: in service, pipeline {each['pipeline']}, splits {splits}"
