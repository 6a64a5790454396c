"""The ``landfall`` command."""

import signal
from pathlib import Path
from typing import NoReturn

__version__ = "0.1.0"
ROOT = Path(__file__).resolve().parent.parent
IS_CLONE = (ROOT / "host.json").is_file()
"""Whether this runs from a clone, and not from an installed package."""
PIPELINES = (ROOT if IS_CLONE else Path()) / "pipelines"
"""Default folder of pipeline files: in the clone, otherwise in the working directory."""


def start() -> NoReturn:
    """Import and run the command line: the entry point of the installed package and of ``python -m cli``."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Ctrl-C would show a stack trace of the imports; main() restores Python's handler before it does anything.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from cli.main import main

    main()
