"""The base class of every error that Landfall raises on purpose."""

from __future__ import annotations


class LandfallError(Exception):
    """Base of everything that Landfall raises on purpose. Its message is meant for people."""
