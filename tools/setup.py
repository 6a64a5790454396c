"""Prepare everything for `make demo` and `make test`, quickly if nothing has changed: `python3.11 -m tools.setup`.

`python -m tools.setup constraints` writes the installed versions to both constraints.txt.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tools import native_library
from tools.environments import ROOT, all_environments, write_constraints, write_launcher
from tools.logged import SetupError, say


def main(arguments: Sequence[str]) -> int:
    """Prepare every environment and the native library. If one fails, print one message and return 1."""
    if list(arguments) == ["constraints"]:
        write_constraints()
        return 0
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
        say("interrupted; the next make continues from here")
        return 130
    return 0


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Lock the clone's folder, so that two runs of make do not install into the same environment."""
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
    sys.exit(main(sys.argv[1:]))
