"""``landfall notify test``: check that notifications reach the recipients of a pipeline."""

from __future__ import annotations

import json
from urllib.parse import quote

import click

from cli.errors import CliError
from cli.options import as_json_option, path_segment, with_api
from cli.remote.api_client import ApiClient


@click.group(epilog="Example: landfall notify test digits")
def notify() -> None:
    """Send a test message to the recipients of a pipeline."""


@notify.command(name="test", epilog="Example: landfall notify test digits --recipient apprise:LANDFALL_TEAM")
@click.argument("dataset")
@click.option(
    "--recipient", metavar="NAME", help="Recipient to test: topic, webhook:SETTING or apprise:SETTING (default: all)."
)
@as_json_option
@with_api
def send_test(client: ApiClient, dataset: str, recipient: str | None, *, as_json: bool) -> None:
    """Send a test message, and show the answer of each recipient.

    The recipients are those of DATASET's pipeline. The function app sends the message with its own identity and
    secrets, at any hour.

    Exit status: 0 every recipient was reached; 1 a recipient was not reached, or nothing could be sent; 2 wrong
    usage.
    """
    chosen = f"?recipient={quote(recipient, safe='')}" if recipient else ""
    answer = client.post(f"/api/pipelines/{path_segment(dataset, 'dataset')}/notifications/test{chosen}")
    if as_json:
        click.echo(json.dumps(answer, indent=2))
    else:
        for test in answer["tests"]:
            click.echo(f"{'reached' if test['reached'] else 'FAILED':<8} {test['recipient']}: {test['answer']}")
    failed = [test["recipient"] for test in answer["tests"] if not test["reached"]]
    if failed:
        raise CliError(f"Not reached: {', '.join(failed)}. Correct the setting or the role, then try again.")
