"""``landfall watch`` and ``landfall status --watch``: changes as they happen."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click

from cli.options import with_api
from cli.remote.api_client import ApiClient, ask_patiently, shown_time
from cli.screen import show
from shared.safe_text import counted

POLL_S = 5.0
MAX_SHOWN = 20
Event = dict[str, str]
"""``at`` (UTC), ``subject`` and ``text``."""


@click.command(epilog="Example: landfall watch")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print each change as one JSON object on its own line, and no overview.",
)
@with_api
def watch(client: ApiClient, *, as_json: bool) -> None:
    """Show an overview, and then each change as one line, until Ctrl-C.

    It shows changes of dataset versions, of runs, and of what needs a person. It polls every five seconds: if a run
    changes twice in between, only the last state is shown; `landfall why` has the whole history.

    Exit status: 130 stopped by Ctrl-C; 1 the function app refused, or gave no answer for ten minutes; 2 wrong usage.
    """
    known = client.get("/api/overview")
    if not as_json:
        show(describe_overview(known))
        click.echo("Watching. Ctrl-C ends it.", err=True)
    while True:
        time.sleep(POLL_S)
        found = ask_patiently(lambda: client.get("/api/overview"))
        for event in events(known, found, now()):
            if as_json:
                click.echo(json.dumps(event))
            else:
                show([f"{shown_time(event['at'])}  {event['text']}"])
        known = found


def now() -> str:
    """Return the time in UTC, as the API writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def describe_overview(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield what needs a person, what trains or waits, and what landed, as the API returns it."""
    concerns, arrived = found["concerns"], found["arrived"]
    yield "Needs a person:" if concerns else "Nothing needs a person."
    yield from (f"  {each['who']}: {each['text']}" for each in concerns[:MAX_SHOWN])
    yield "Trains or waits:" if found["active"] else "No run is active."
    yield from (f"  {_run(run)}" for run in found["active"][:MAX_SHOWN])
    if found["open"]:
        yield "Incomplete:"
        yield from (f"  {_open(each)}" for each in found["open"][:MAX_SHOWN])
    versions, shards = counted(arrived["versions"], "complete version"), counted(arrived["shards"], "shard")
    records, others = counted(arrived["records"], "record"), counted(arrived["open_shards"], "shard")
    yield f"Landed today: {versions} with {shards} and {records}, and {others} of incomplete ones."
    for each in found["closed"][:MAX_SHOWN]:
        yield f"  {each['dataset']}/{each['version']}: complete since {shown_time(each['closed_at'])}"
    if not found["open"] and not found["closed"]:
        yield "  Nothing was uploaded yet: landfall upload FOLDER --to DATASET/VERSION"


def events(before: Mapping[str, Any], after: Mapping[str, Any], seen_at: str) -> Iterator[Event]:
    """Yield the changes between two overviews, by time; a change without a time of its own gets ``seen_at``."""
    found = [*_of_runs(before, after), *_of_versions(before, after, seen_at), *_of_concerns(before, after, seen_at)]
    yield from sorted(found, key=lambda event: event["at"])


def _of_runs(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Event]:
    states = {run["run_id"]: run["state"] for run in before["runs"]}
    for run in after["runs"]:
        if run["state"] != states.get(run["run_id"]):
            yield {"at": run["since"], "subject": run["run_id"], "text": _run(run)}


def _of_versions(before: Mapping[str, Any], after: Mapping[str, Any], seen_at: str) -> Iterator[Event]:
    closings = {(each["dataset"], each["version"], each["generation"]) for each in before["closed"]}
    for each in after["closed"]:
        name = f"{each['dataset']}/{each['version']}"
        if (each["dataset"], each["version"], each["generation"]) not in closings:
            size = f"{counted(each['num_shards'], 'shard')}, {counted(each['num_records'], 'record')}"
            text = f"{name}: complete, generation {each['generation']}: {size}"
            yield {"at": each["closed_at"], "subject": name, "text": text}
    known = {(each["dataset"], each["version"]): each for each in before["open"]}
    for each in after["open"]:
        if each != known.get((each["dataset"], each["version"])):
            name = f"{each['dataset']}/{each['version']}"
            yield {"at": each["last_at"] or seen_at, "subject": name, "text": _open(each)}


def _of_concerns(before: Mapping[str, Any], after: Mapping[str, Any], seen_at: str) -> Iterator[Event]:
    for each in after["concerns"]:
        if each not in before["concerns"]:
            yield {"at": seen_at, "subject": each["page"], "text": f"needs the {each['who']}: {each['text']}"}
    for each in before["concerns"]:
        if each not in after["concerns"]:
            yield {"at": seen_at, "subject": each["page"], "text": f"resolved: {each['text']}"}


def _run(run: Mapping[str, Any]) -> str:
    why = run["waiting"] or run["reason"]
    return f"{run['dataset']}/{run['version']}: run {run['run_id']} {run['state']}" + (f": {why}" if why else "")


def _open(each: Mapping[str, Any]) -> str:
    name = f"{each['dataset']}/{each['version']}"
    if each["last_at"] is None:
        return f"{name}: incomplete"
    total = "?" if each["num_shards"] is None else f"{each['num_shards']:,}"
    rejected = f", {each['rejected']:,} rejected" if each["rejected"] else ""
    return f"{name}: {each['accepted']:,} of {total} shards accepted{rejected}"


def follow(ask: Callable[[], dict[str, Any]], show: Callable[[Mapping[str, Any]], None]) -> None:
    """Show an answer after each change, until no change can follow, or Ctrl-C.

    No change can follow once a version is complete and each of its runs has ended.
    """
    known: Mapping[str, Any] | None = None
    while True:
        found = ask() if known is None else ask_patiently(ask)
        if found != known:
            show(found)
        known = found
        if has_ended(found):
            return
        time.sleep(POLL_S)


def has_ended(version: Mapping[str, Any]) -> bool:
    """Whether a version is complete and its runs have ended; an overview never ends."""
    runs = version.get("runs") or []
    is_whole = version.get("generation") is not None
    return is_whole and bool(runs) and all(map(_run_has_ended, runs))


def _run_has_ended(run: Mapping[str, Any]) -> bool:
    """Whether a run has ended, and no further attempt has yet to be recorded."""
    from function_app.domain.failures import RETRYING
    from function_app.domain.run_states import SETTLED

    awaits_attempt = run["next_run_id"] is None and run["remedy"] in RETRYING
    return run["state"] in SETTLED and not awaits_attempt
