"""What can be wrong with the emulator's configuration and with what is published to it."""

from __future__ import annotations


class EventGridError(Exception):
    """The emulator cannot start. The message is one paragraph for the person at the terminal."""


class ConfigurationError(EventGridError):
    """The configuration file has a field that is missing or cannot be used; the message names it."""


class InvalidEventError(ValueError):
    """A published body is no array of events; the message says what is missing where."""
