"""How long the Functions host lets an execution run: host.json says so, or an app setting that goes before it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from function_app.errors import SettingsError

HOST_FILE = Path(__file__).resolve().parent.parent / "host.json"
OVERRIDE = "AzureFunctionsJobHost__functionTimeout"
"""Source: learn.microsoft.com/azure/azure-functions/functions-host-json, "Override host.json values"."""
BUDGET_SHARE = 0.75
"""Of an execution: what cannot be paused has 1.2 times the budget, and the verdict is to be written down after it."""
DEFAULT_S = 30 * 60
"""Of Flex Consumption, where host.json says nothing."""
MAX_FILE_BYTES = 1 << 20
_TIME_SPAN = re.compile(
    r"(?:(?P<days>\d{1,3})\.)?(?P<hours>\d{1,2}):(?P<minutes>\d{2}):(?P<seconds>\d{2})(?:\.\d{1,7})?"
)
_UNLIMITED = "-1"


def check_budget(budget_s: int, environ: Mapping[str, str], host_file: Path = HOST_FILE) -> None:
    """Raise SettingsError where a validation may take longer than the host lets it: it would be killed, for ever."""
    source, text = _stated(environ, host_file)
    timeout_s = _seconds(source, text)
    if timeout_s is None or budget_s <= timeout_s * BUDGET_SHARE:
        return
    raise SettingsError(
        f"LANDFALL_VALIDATION_BUDGET_S should be at most {int(timeout_s * BUDGET_SHARE)}, three quarters of the "
        f"{timeout_s} s that {source} allows an execution, was {budget_s}"
    )


def _stated(environ: Mapping[str, str], host_file: Path) -> tuple[str, object]:
    if OVERRIDE in environ:
        return OVERRIDE, environ[OVERRIDE]
    source = f"functionTimeout of {host_file.name}"
    try:
        with host_file.open("rb") as file:
            return source, json.loads(file.read(MAX_FILE_BYTES)).get("functionTimeout")
    except FileNotFoundError:
        return source, None
    except (OSError, ValueError, AttributeError) as error:
        raise SettingsError(f"{host_file.name} should be a JSON object, cannot be read: {error}") from error


def _seconds(source: str, text: object) -> int | None:
    """Return None where there is no limit."""
    if text is None:
        return DEFAULT_S
    match = _TIME_SPAN.fullmatch(str(text))
    if match is None and text != _UNLIMITED:
        raise SettingsError(f"{source} should look like 00:30:00, or be -1 for no limit, was {text!r}")
    if match is None:
        return None
    parts = {name: int(number or 0) for name, number in match.groupdict().items()}
    return ((parts["days"] * 24 + parts["hours"]) * 60 + parts["minutes"]) * 60 + parts["seconds"]
