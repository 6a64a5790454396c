"""Prepare what `make demo` and `make test` need, quick when nothing changed: `python3.11 -m tools.setup`."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tools import native_library
from tools.environments import ROOT, all_environments
from tools.launcher import write_launcher
from tools.logged import SetupError, say


def main() -> int:
    """Prepare every environment and the native library; 1 and one message when one of them cannot be made."""
    try:
        with one_at_a_time():
            for environment in all_environments():
                environment.prepare()
            native_library.build()
            write_launcher(ROOT, ROOT / ".venv")
    except (SetupError, OSError) as error:
        say(f"failed: {error}")
        return 1
    except KeyboardInterrupt:
        say("interrupted; the next make goes on from here")
        return 130
    return 0


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Hold the clone's own folder locked, so that two makes do not install into one environment."""
    folder = os.open(ROOT, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another make is setting up this clone; waiting for it")
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


if __name__ == "__main__":
    sys.exit(main())
