"""The contract between the submitter (function_app) and the training (training_job).

It uses only the standard library and crc32c.

The contract has versions, which define the manifest, command line, report and exit codes of a job. The function app
and the training's code are published separately, each with its current copy of this file. The version of the code
asset begins with the contract versions that it supports, ``c1-`` or ``c1.2-``. The app reads them from its settings,
so that it does not submit jobs that would fail on paid nodes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

SPOKEN: tuple[int, ...] = (1,)
"""Supported contract versions, oldest first. Append a version for a change that the other side's present code would
not understand. Keep an older version while this side still supports it."""

_VERSION = re.compile(r"/codes/[^/]+/versions/c(?P<spoken>[0-9]{1,4}(\.[0-9]{1,4}){0,9})-[^/]+")
_FIRST = (1,)
"""The contract version of code assets without one, which were published by early releases."""


def asset_version(digest: str, spoken: Sequence[int] = SPOKEN) -> str:
    """Return the version of a code asset, which begins with its contract versions."""
    return f"c{_words(spoken)}-{digest}"


def spoken_by(code_id: str) -> tuple[int, ...]:
    """Return the contract versions of a code asset, from its id."""
    found = _VERSION.search(code_id)
    return tuple(int(number) for number in found["spoken"].split(".")) if found else _FIRST


def mismatch(code_id: str, spoken: Sequence[int] = SPOKEN) -> str | None:
    """Return why jobs with this code cannot be submitted; None if both sides share a version."""
    theirs = spoken_by(code_id)
    if set(theirs) & set(spoken):
        return None
    return (
        f"the function app supports version {_words(spoken)} of the job contract, and the training's code "
        f"{code_id.rpartition('/')[2]} supports {_words(theirs)}: run `azd up` from the release that you want, which "
        "deploys both"
    )


def _words(spoken: Sequence[int]) -> str:
    return ".".join(map(str, spoken))
