"""The argument ``<dataset>/<version>``, or ``<dataset>`` alone where its data are synthetic."""

from __future__ import annotations

import re
from typing import Any

import click

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


def _checked(
    argument: click.ParamType[Any], part: str, param: click.Parameter | None, ctx: click.Context | None
) -> str:
    if _PART.fullmatch(part) is None:
        argument.fail(f"{part!r} should be letters, digits, '.', '_' and '-', at most 128 of them", param, ctx)
    return part


DATASET_VERSION = DatasetVersionArgument()
TRAINABLE = TrainableArgument()
