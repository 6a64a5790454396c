"""Filling a job's command: ${{inputs.x}} and ${{outputs.x}}."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PLACEHOLDER = re.compile(r"\$\{\{\s*(inputs|outputs)\.([A-Za-z_][\w.-]*?)\s*\}\}")
_ANY = re.compile(r"\$\{\{.*?\}\}")


def expand(command: str, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> str:
    """Replace every placeholder by its value; KeyError names the first that has none."""
    values = {"inputs": inputs, "outputs": outputs}
    return _PLACEHOLDER.sub(lambda match: values[match[1]][match[2]], command)


def unknown_placeholders(command: str, inputs: set[str], outputs: set[str]) -> list[str]:
    """Placeholders of `command` that no input or output of the job fills, in order."""
    known = {"inputs": inputs, "outputs": outputs}
    unknown = []
    for match in _ANY.finditer(command):
        placeholder = _PLACEHOLDER.fullmatch(match[0])
        if placeholder is None or placeholder[2] not in known[placeholder[1]]:
            unknown.append(match[0])
    return unknown
