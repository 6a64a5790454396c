"""Arguments that name something: ``<dataset>/<version>``, ``<dataset>`` alone where its data are synthetic, an id."""

from __future__ import annotations

import re
from typing import Any

import click

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*", re.ASCII)
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)


class DatasetVersionArgument(click.ParamType[tuple[str, str]]):
    """``digits/2026-11-20`` becomes ``("digits", "2026-11-20")``."""

    name = "dataset/version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Split and check; click shows the message with the command's usage."""
        if isinstance(value, tuple):
            return value
        parts = str(value).strip("/").split("/")
        if len(parts) != 2:  # noqa: PLR2004 - a dataset and a version
            self.fail(f"expected <dataset>/<version>, such as digits/2026-11-20, was {value!r}", param, ctx)
        dataset, version = (_checked(self, part, param, ctx) for part in parts)
        return dataset, version


class TrainableArgument(click.ParamType[tuple[str, str | None]]):
    """The same, or ``synthetic-benchmark``, which becomes ``("synthetic-benchmark", None)``."""

    name = "dataset[/version]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str | None]:
        """Split and check; whether the dataset may stand alone is for the function app to say."""
        if isinstance(value, tuple) or "/" in str(value).strip("/"):
            return DATASET_VERSION.convert(value, param, ctx)
        return _checked(self, str(value).strip("/"), param, ctx), None


class IdArgument(click.ParamType[str]):
    """The id of a run or a dead letter: anything else would be another address of the API's."""

    name = "id"

    def __init__(self, what: str, example: str) -> None:
        self._what, self._example = what, example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Check it; which ids there are is for the function app to say."""
        if _ID.fullmatch(str(value)) is None:
            self.fail(f"expected the id of {self._what}, such as {self._example}, was {value!r}", param, ctx)
        return str(value)


def _checked(
    argument: click.ParamType[Any], part: str, param: click.Parameter | None, ctx: click.Context | None
) -> str:
    if _PART.fullmatch(part) is None:
        argument.fail(f"{part!r} should be letters, digits, '.', '_' and '-', at most 128 of them", param, ctx)
    return part


DATASET_VERSION = DatasetVersionArgument()
TRAINABLE = TrainableArgument()
RUN_ID = IdArgument("a run", "landfall-digits-2026-11-20-1f3a9c2b7d5e-a1")
DEAD_LETTER_ID = IdArgument("a dead letter", "0123456789abcdef")
