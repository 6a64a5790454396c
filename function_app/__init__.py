"""Landfall's submitter: events in, decisions, Azure out.

The Functions host imports this package by name and expects to find exactly one app in it: ``app``.
"""

from function_app.functions import build_app
from shared.safe_text import make_logging_safe

make_logging_safe()
app = build_app()

__all__ = ["app"]
