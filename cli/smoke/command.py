"""``landfall smoke``."""

from __future__ import annotations

import functools
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from cli.demo.command import new_version
from cli.deploy.workspace import AzureMlWorkspace
from cli.errors import CliError, ending_on_signals
from cli.options import TWINS, with_api
from cli.remote.api_client import ApiClient
from cli.smoke.assertions import ASSERTIONS, Results
from cli.smoke.course import DATASET, Course
from cli.smoke.gpu import GPU_ASSERTION, ask_network, gpu_pipeline
from cli.smoke.page import page
from cli.smoke.removal import Removal, remove_all
from cli.upload import container_option, data_account, open_uploader
from local_azure.twin.state import write_atomically

FAILED = 1
REPORT_FILE, PAGE_FILE = "smoke.json", "smoke.html"
FORMAT_VERSION = 1


@click.command(epilog="Example: landfall smoke --account-url https://NAME.blob.core.windows.net")
@click.option(
    "--account-url",
    help="URL of the data account, such as https://NAME.blob.core.windows.net (default: as for `landfall upload`).",
)
@container_option
@click.option(
    "--report",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=TWINS / "smoke",
    show_default=".landfall/smoke",
    help="Folder for the report.",
)
@click.option(
    "--gpu",
    is_flag=True,
    help="Also train one step on the GPU nodes of a pipeline of synthetic data, and say which network NCCL uses.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the report as JSON, and everything else to standard error."
)
@with_api
def smoke(
    client: ApiClient, *, account_url: str | None, container: str, folder: Path, gpu: bool, as_json: bool
) -> int:
    """Test a deployment: train a model from two shards on two small nodes, let one job fail, and cancel one.

    The test takes about 20 minutes and costs two small nodes for that time. It prints a line for each assertion, and
    writes a report in any case. It first removes what an earlier test left, and at the end what it created. Run one
    test at a time.

    Exit status: 0 every assertion holds; 1 an assertion does not hold, or the test could not run; 2 wrong usage.
    """
    account, twin = data_account(account_url)
    if twin is not None:
        os.environ.update(twin.operator)  # Microsoft's client of Azure ML finds the twin by it
    if gpu and twin is not None:
        raise CliError("--gpu needs a deployment in Azure: the GPUs of the local twin exist by name only.")
    return run_smoke(client, account, container, folder, with_gpu=gpu, as_json=as_json)


def run_smoke(
    client: ApiClient,
    account: str,
    container: str,
    folder: Path,
    *,
    with_gpu: bool = False,
    as_json: bool = False,
) -> int:
    """Run the test; return the exit status. Raises CliError if it cannot be run."""
    say = functools.partial(click.echo, err=as_json)
    pipeline = gpu_pipeline(client.pipelines()) if with_gpu else None
    began = datetime.now(UTC)
    with ending_on_signals(), open_uploader(account, container) as uploader:
        left = remove_all(client, uploader.container, AzureMlWorkspace.open)
        for text in left.removed:
            say(f"removed, left by an earlier test: {text}")
        version = new_version(began, lambda name: uploader.has(f"{DATASET}/{name}/"))
        results = Results(say, (*ASSERTIONS[:-1], GPU_ASSERTION, ASSERTIONS[-1]) if pipeline else ASSERTIONS)
        course = Course(api=client, data=uploader.container, version=version, results=results)
        error: str | None = "interrupted"
        try:
            course.run()
            if pipeline is not None:
                ask_network(course, pipeline, AzureMlWorkspace.open)
            error = None
        except Exception as failure:
            error = failure.message if isinstance(failure, CliError) else f"an unexpected answer: {failure!r:.500}"
            raise
        finally:
            removal = remove_all(client, uploader.container, AzureMlWorkspace.open)
            seen = "; ".join(removal.problems or removal.removed) or "there was nothing to remove"
            results.record("removed", seen, holds=not removal.problems)
            report = report_of(course, removal, began, error)
            file = write_report(folder, report)
            outcome = "Every assertion holds" if results.passed else "NOT every assertion holds"
            say(f"{outcome}; the report is {file}")
            if as_json:
                click.echo(json.dumps(report))
    return 0 if results.passed else FAILED


def report_of(course: Course, removal: Removal, began: datetime, error: str | None) -> dict[str, Any]:
    """Return what smoke.json holds. ``error`` is why the test ended early, None if it did not."""
    return {
        "format_version": FORMAT_VERSION,
        "outcome": "passed" if course.results.passed else "failed",
        "error": error,
        "function_app": course.api.url,
        "dataset_version": f"{DATASET}/{course.version}",
        "began_at": began.isoformat(timespec="seconds"),
        "ended_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "runs": dict(course.run_ids),
        "assertions": course.results.to_json(),
        "removed": removal.removed,
        "stays": removal.stays,
    }


def write_report(folder: Path, report: dict[str, Any]) -> Path:
    """Write the report as JSON and as a page; return the page."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / REPORT_FILE, json.dumps(report, indent=1) + "\n")
    write_atomically(folder / PAGE_FILE, page(report))
    return folder / PAGE_FILE
