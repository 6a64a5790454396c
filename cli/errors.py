"""What the command says when it cannot do what was asked."""

from __future__ import annotations

import errno

import click

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What writing fails with where the disk, or what one may have of it, is full."""


class CliError(click.ClickException):
    """Shown as one paragraph on standard error; the exit status is 1."""
