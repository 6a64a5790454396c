"""``python -m cli`` is ``landfall``."""

from cli import start

start()
