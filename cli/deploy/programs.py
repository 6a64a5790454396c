"""Calls of `az` and `azd`, with errors that say what to do."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cli.errors import CliError
from shared.safe_text import several_lines

INSTALL = {
    "az": "install the Azure CLI: https://learn.microsoft.com/cli/azure/install-azure-cli",
    "azd": "install the Azure Developer CLI: https://aka.ms/azd-install",
}
MAX_SHOWN_CHARS = 2000


@dataclass(frozen=True, kw_only=True)
class AzdEnvironment:
    """The values that azd passes to a hook; values that a hook sets reach the templates and later hooks."""

    values: Mapping[str, str]

    def output(self, name: str) -> str:
        """Return an output of the template. Raises CliError if azd has none."""
        value = self.values.get(name, "").strip()
        if not value:
            raise CliError(f"{name} is not set in azd's environment: run `azd provision`, which sets it")
        return value

    def required(self, name: str) -> str:
        """Return a value that a person sets. Raises CliError if azd has none."""
        value = self.values.get(name, "").strip()
        if not value:
            raise CliError(
                f"{name} is not set in azd's environment; run this through azd, or `azd env set {name} VALUE`"
            )
        return value

    def set(self, name: str, value: str) -> None:
        """Keep a value in azd's environment, unless it is there already."""
        if self.values.get(name) != value:
            run("azd", "env", "set", name, value, fix="select an environment: azd env select")


@contextmanager
def reading(command: str) -> Iterator[None]:
    """Raise CliError if code that reads an answer finds a member missing or of the wrong type."""
    try:
        yield
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise CliError(f"`{command}` printed unexpected output ({error!r:.200}); try: az upgrade") from error


def run(program: str, *arguments: str, fix: str, shows_output: bool = False) -> str:
    """Return what a program prints; ``shows_output`` lets it write to the terminal instead.

    Raises CliError with the end of its own message, and ``fix``.
    """
    target = None if shows_output else subprocess.PIPE
    try:
        ended = subprocess.run(  # noqa: S603 (the programs are those above, and no shell reads the arguments)
            [program, *arguments], stdin=subprocess.DEVNULL, stdout=target, stderr=target, check=False
        )
    except FileNotFoundError as error:
        raise CliError(f"{program} is not on PATH: {INSTALL[program]}") from error
    if ended.returncode:
        said = several_lines((ended.stderr or b"").decode(errors="replace").strip()[-MAX_SHOWN_CHARS:])
        words = " ".join([program, *arguments[:3]])
        raise CliError(f"`{words}` ended with exit code {ended.returncode}; {fix}" + (f"\n{said}" if said else ""))
    return (ended.stdout or b"").decode(errors="replace")


def az(*arguments: str, fix: str) -> Any:
    """Return what `az` prints, as JSON. Raises CliError."""
    printed = run("az", *arguments, "--output", "json", "--only-show-errors", fix=fix)
    try:
        return json.loads(printed or "null")
    except ValueError as error:
        raise CliError(f"`az {' '.join(arguments[:3])}` printed no JSON; {fix}") from error
