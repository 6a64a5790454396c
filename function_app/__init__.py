"""Landfall's submitter: it validates shards, submits and follows training jobs, and registers models.

The Functions host imports this package by name and expects to find exactly one app in it: ``app``.
"""

from function_app.functions import build_app
from shared.safe_text import make_logging_safe

make_logging_safe()
app = build_app()

__all__ = ["app"]
