"""What the command says when it cannot do what was asked."""

from __future__ import annotations

import click


class CliError(click.ClickException):
    """Shown as one paragraph on standard error; the exit status is 1."""
