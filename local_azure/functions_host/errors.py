"""What keeps the dev host from starting or from doing what it was asked."""

from __future__ import annotations


class DevHostError(Exception):
    """The dev host cannot start. The message is one paragraph for the person at the terminal."""


class BindingError(DevHostError):
    """A function's binding names a setting that is not there, or holds a value that cannot be used."""
