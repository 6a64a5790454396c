"""``landfall demo``: the whole chain on this machine, on real data."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import httpx

from cli.demo.digits import pack_digits
from cli.demo.following import DemoError, Follower, Observer, Stopwatch
from cli.demo.narration import TimedLines
from cli.demo.report import demo_report, summary, training_report
from cli.errors import CliError, ending_on_signals
from cli.remote.api_client import ApiClient
from cli.up import addresses, show_addresses, twin_options, watch_until_interrupted
from cli.uploader import ShardUploader, upload_all
from local_azure.processes import TwinError
from local_azure.twin.addresses import DATA_CONTAINER, Places, TwinOptions
from local_azure.twin.client import TwinClient
from local_azure.twin.state import write_atomically
from local_azure.twin.twin import Twin, running_twin

DATASET = "digits"
REPORT_FILE = "demo.json"
SUMMARY_COLUMNS = 17
"""Columns of the labels in the summary."""


@click.command(epilog="Example: landfall demo --keep")
@click.option("--keep", is_flag=True, help="Keep the twin running after the summary, until Ctrl-C.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the report as JSON, and everything else to standard error."
)
@twin_options
def demo(options: TwinOptions, *, keep: bool, as_json: bool) -> None:
    """Run the whole chain on this machine: real digits in, a registered model out.

    Starts the local twin, packs and uploads scikit-learn's handwritten digits, and follows them until their model
    is registered. Writes the result to demo.json in the state folder.
    """
    lines, watch = TimedLines(stderr=as_json), Stopwatch()
    with ending_on_signals():
        watch.begin("twin_start")
        with _explained(options), running_twin(options, say=lines.say) as twin:
            show_addresses(addresses(twin), lines.text)
            with _explained(options, twin.places):
                report = run_demo(twin, lines, watch)
            _write(report, options.base, twin.places.folder)
            _print_summary(report, options.base / REPORT_FILE, lines)
            if as_json:
                click.echo(json.dumps(report))
            if keep:
                _print_next_steps(report, twin.places, lines)
                watch_until_interrupted(twin, lines.text)
        if keep:
            lines.text("Stopped.")
        else:
            lines.text("The twin has stopped; `make demo ARGS=--keep` leaves one running.")


def run_demo(twin: Twin, lines: TimedLines, watch: Stopwatch) -> dict[str, Any]:
    """Upload, follow, and return what demo.json will hold. Raises DemoError, CliError or TwinError."""
    places = twin.places
    with ExitStack() as clients:
        api = clients.enter_context(ApiClient(places.functions_url, places.secrets.function_key))
        client = clients.enter_context(TwinClient(places))
        watch.begin("upload")
        version, num_shards = _upload_digits(places, lines)
        observer = Observer(api=api, twin=client, dataset=DATASET, version_name=version, expected_shards=num_shards)
        watch.begin("validation")
        follower = Follower(observer=observer, say=lines.say, enter_phase=watch.begin, check=twin.check_running)
        with lines.waiting("watching the function app and the cluster"):
            follower.follow()
        return demo_report(
            version=observer.version,
            run=observer.run,
            notifications=observer.notifications,
            calls=client.calls(),
            training=training_report(places, observer.run),
            durations_s=watch.finish(),
        )


def _upload_digits(places: Places, lines: TimedLines) -> tuple[str, int]:
    """Pack and upload; return the new version and its number of shards."""
    with tempfile.TemporaryDirectory(prefix="landfall-digits-") as folder:
        lines.say("packing 1,797 real handwritten digits: PNG and label, 8 train and 2 validation shards")
        shards = pack_digits(Path(folder))
        with ShardUploader.connected(places.data_connection, DATA_CONTAINER) as uploader:
            version = new_version(datetime.now().astimezone(), lambda name: uploader.has(f"{DATASET}/{name}/"))
            lines.say(f"uploading to {DATA_CONTAINER}/{DATASET}/{version}/")
            upload_all(uploader, shards, (DATASET, version))
    return version, len(shards)


def new_version(now: datetime, is_taken: Callable[[str], bool]) -> str:
    """Return the time, to the second, as a version name; a number is appended if that name is taken."""
    name = now.strftime("%Y%m%d-%H%M%S")
    number = 2
    candidate = name
    while is_taken(candidate):
        candidate, number = f"{name}-{number}", number + 1
    return candidate


def _write(report: dict[str, Any], *folders: Path) -> None:
    text = json.dumps(report, indent=1) + "\n"
    for folder in folders:
        write_atomically(folder / REPORT_FILE, text)


def _print_summary(report: Mapping[str, Any], file: Path, lines: TimedLines) -> None:
    lines.text()
    for line in [*summary(report), f"report           {file}"]:
        lines.text(line, indent=SUMMARY_COLUMNS)
    lines.text()


def _print_next_steps(report: Mapping[str, Any], places: Places, lines: TimedLines) -> None:
    version, run_id = report["dataset_version"], report["run"]["run_id"]
    lines.text(f"The twin keeps running; Ctrl-C stops everything. Look around at {places.functions_url}/")
    lines.text("or in another terminal, for example:")
    for command in (f"status {version}", f"why {version}", f"run {run_id}", "--help"):
        lines.text(f"  .venv/bin/landfall {command}")


@contextmanager
def _explained(options: TwinOptions, places: Places | None = None) -> Iterator[None]:
    """Turn an error into one paragraph: the problem, where the logs are, what to do."""
    try:
        yield
    except (DemoError, TwinError, CliError, httpx.HTTPError) as error:
        if isinstance(error, ExplainedError):
            raise
        problem = error.message if isinstance(error, CliError) else str(error)
        logs = places.logs if places else options.base
        raise ExplainedError(
            f"The demo failed. {problem}\nThe logs of all parts are in {logs}. Run `landfall demo` again: it uses a "
            f"new dataset version. If it fails again, run `make clean` first, which removes the twin's state."
        ) from error


class ExplainedError(CliError):
    """An error that already says where the logs are."""
