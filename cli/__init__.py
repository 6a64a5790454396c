"""The ``landfall`` command."""
