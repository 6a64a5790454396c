"""`python -m local_azure.event_grid --port P --config FILE.json`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from local_azure.event_grid.config import load_config
from local_azure.event_grid.emulator import run
from local_azure.event_grid.errors import EventGridError
from local_azure.storage_connections import StorageConnectionError


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until stopped and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m local_azure.event_grid", description=__doc__)
    parser.add_argument("--port", type=int, default=7072, help="loopback port, 0 for any (default 7072)")
    parser.add_argument("--config", type=Path, required=True, help="JSON file; state is kept in its folder")
    given = parser.parse_args(arguments)
    try:
        run(load_config(given.config.resolve()), given.port, os.environ)
    except (EventGridError, StorageConnectionError) as error:
        print(f"event grid: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
