"""What can go wrong with the twin; every message is fit for a person."""

from __future__ import annotations


class TwinError(Exception):
    """The twin could not start, or a part of it ended; the message names the part, its log and what to do."""
