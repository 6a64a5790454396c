"""`python -m local_azure.functions_host --root DIR --port P`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from local_azure.functions_host.host import Options, run
from local_azure.functions_host.keys import FORM
from local_azure.functions_host.settings import DevHostError
from local_azure.http_server import PortError
from local_azure.storage_connections import StorageConnectionError


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until stopped and return the exit code."""
    try:
        run(_options(arguments))
    except (DevHostError, PortError, StorageConnectionError) as error:
        print(f"dev host: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def _options(arguments: Sequence[str] | None) -> Options:
    parser = argparse.ArgumentParser(prog="python -m local_azure.functions_host", description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="folder with function_app.py and host.json")
    parser.add_argument("--port", type=int, default=7071, help="loopback port, 0 for any (default 7071)")
    parser.add_argument(
        "--keys-env", default="", help=f"variable with the app's keys, {FORM} (default: everything is open)"
    )
    parser.add_argument(
        "--queue-lease-s", type=float, default=30.0, help="a killed host's messages reappear after it"
    )
    parser.add_argument("--grace-s", type=float, default=10.0, help="time for running invocations when stopped")
    parser.add_argument(
        "--storage-patience-s", type=float, default=15.0, help="wait this long for storage at the start"
    )
    parser.add_argument("--verbose", action="store_true", help="log stack traces and debug records too")
    options = parser.parse_args(arguments)
    return Options(**{**vars(options), "root": options.root.resolve()})


if __name__ == "__main__":
    sys.exit(main())
