"""``landfall submit``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click
import yaml

from cli.api_client import ApiClient
from cli.dataset_argument import TRAINABLE
from cli.target import with_api
from function_app.domain.run_states import SETTLED


class OverrideOption(click.ParamType[tuple[str, Any]]):
    """``epochs=3`` becomes ``("epochs", 3)``."""

    name = "key=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        """Split at the first ``=``; numbers and booleans are read as YAML reads them."""
        if isinstance(value, tuple):
            return value
        key, separator, text = str(value).partition("=")
        if not separator or not key:
            self.fail(f"expected key=value, such as epochs=3, was {value!r}", param, ctx)
        try:
            parsed = yaml.safe_load(text)
        except yaml.YAMLError:
            parsed = text
        return key, parsed if isinstance(parsed, (int, float, bool)) else text


@click.command()
@click.argument("target", type=TRAINABLE, metavar="DATASET[/VERSION]")
@click.option("--set", "overrides", type=OverrideOption(), multiple=True, help="An option of the training, within "
              "the limits of the pipeline; may be repeated.")  # fmt: skip
@click.option("--force", is_flag=True, help="Train again on purpose, whatever was trained "
              "on it before, and with a script that has errors.")  # fmt: skip
@with_api
def submit(
    client: ApiClient, target: tuple[str, str | None], overrides: tuple[tuple[str, Any], ...], *, force: bool
) -> None:
    """Train on a dataset version that is whole, or on synthetic data: DATASET alone."""
    run = client.submit(*target, dict(overrides), force=force)
    click.echo("\n".join(describe(run, "/".join(filter(None, target)))))


def describe(run: Mapping[str, Any], target: str) -> Iterator[str]:
    """Yield the lines that tell of the run that a request led to, which may have ended long before."""
    if run["state"] in SETTLED:
        yield f"{run['run_id']} has ended before: {run['state']}. Nothing new starts."
        yield f"See: landfall run {run['run_id']}. To train again: landfall submit {target} --force"
    else:
        yield f"{run['run_id']}: {run['state']}. Follow it with: landfall run {run['run_id']}"
