"""A group of commands that are imported only when they run, so that help and typing errors cost no imports."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click


@dataclass(frozen=True)
class LazyCommand:
    """Where a command is defined, and its line in the overview."""

    module: str
    attribute: str
    summary: str


class LazyGroup(click.Group):
    """A click group over `LazyCommand`s."""

    def __init__(self, *, lazy: Mapping[str, LazyCommand], **settings: Any) -> None:
        super().__init__(**settings)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which a newcomer needs them."""
        del ctx
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command; return None for an unknown name."""
        del ctx
        found = self.lazy.get(cmd_name)
        if found is None:
            return None
        command = getattr(importlib.import_module(found.module), found.attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{found.module}.{found.attribute} is no click command but {type(command)}")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments start with. Raises UsageError with a suggestion for an unknown one."""
        if args and args[0] not in self.lazy:
            near = difflib.get_close_matches(args[0], self.lazy, n=1, cutoff=0.5)
            hint = f"Did you mean {near[0]!r}?" if near else f"The commands are: {', '.join(self.lazy)}."
            raise click.UsageError(f"There is no command {args[0]!r}. {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.summary) for name, command in self.lazy.items()])
