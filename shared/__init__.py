"""The contract between the submitter (function_app) and the training (training_job): standard library plus crc32c.

It has versions: what manifest, command line, report and exit codes of a job look like. The function app and the
training's code are published one after the other, and each has this file as it was then. The version of the code
asset begins with what it speaks, ``c1-`` or ``c1.2-``, so that the app knows it from its settings and submits no job
that could only fail on paid nodes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

SPOKEN: tuple[int, ...] = (1,)
"""Oldest first. Append a version for a change that the other side's present code would not understand, and keep an
older one as long as this side understands it, too."""

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
    """Return why jobs with this code cannot be submitted; None if both sides have a version in common."""
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
