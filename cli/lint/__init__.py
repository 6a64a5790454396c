"""``landfall lint``."""

from __future__ import annotations

from cli.lint.command import lint

__all__ = ["lint"]
