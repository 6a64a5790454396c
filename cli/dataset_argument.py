"""The argument ``<dataset>/<version>``."""

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
        for part in parts:
            if _PART.fullmatch(part) is None:
                self.fail(f"{part!r} should be letters, digits, '.', '_' and '-', at most 128 of them", param, ctx)
        return parts[0], parts[1]


DATASET_VERSION = DatasetVersionArgument()
