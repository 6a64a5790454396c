"""Landfall's submitter: events in, decisions, Azure out.

The Functions host imports this package by name and wants to find one app in it: ``app``, and nothing else.
"""

from function_app.main import app

__all__ = ["app"]
