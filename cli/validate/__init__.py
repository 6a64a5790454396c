"""``landfall validate``."""

from __future__ import annotations

from cli.validate.command import validate

__all__ = ["validate"]
