"""The options that `landfall up` and `landfall demo` share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from local_azure.twin.options import TwinOptions

R = TypeVar("R")
FOLDER = click.Path(file_okay=False, path_type=Path)


def twin_options(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command the options of a twin, and `options: TwinOptions`."""
    defaults = TwinOptions()

    @click.option("--state", type=FOLDER, default=defaults.base, help="Folder for the state [default: .landfall].")
    @click.option(
        "--pipelines",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        default=defaults.pipelines,
        help="Folder of the pipeline files [default: pipelines].",
    )
    @click.option(
        "--node-start-delay-s",
        type=click.FloatRange(0, 3600),
        default=defaults.node_start_delay_s,
        help="What a node of the simulated cluster takes to come up.",
    )
    @functools.wraps(command)
    def wrapper(*args: Any, state: Path, pipelines: Path, node_start_delay_s: float, **kwargs: Any) -> R:
        options = TwinOptions(
            base=state.resolve(), pipelines=pipelines.resolve(), node_start_delay_s=node_start_delay_s
        )
        return command(*args, options=options, **kwargs)

    return wrapper
