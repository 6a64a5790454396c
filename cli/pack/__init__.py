"""``landfall pack``."""

from __future__ import annotations

from cli.pack.command import pack

__all__ = ["pack"]
