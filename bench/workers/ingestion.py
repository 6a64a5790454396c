"""A server, in a process of its own, that accepts items for Application Insights and discards them."""

from __future__ import annotations

import contextlib
import gzip
import json
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bench.figures import Context
from local_azure.guard import die_with_parent


@contextlib.contextmanager
def running_ingestion(context: Context) -> Iterator[str]:
    """Yield the address of a running server."""
    command = [str(context.python), "-m", "bench.workers.ingestion"]
    with subprocess.Popen(
        command,
        cwd=context.root,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - there are no threads here
    ) as process:
        try:
            yield process.stdout.readline().strip() if process.stdout else ""
        finally:
            process.kill()


class _Ingestion(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """Respond that every item was accepted."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        items = json.loads(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
        answer = json.dumps({"itemsReceived": len(items), "itemsAccepted": len(items), "errors": []}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def main() -> None:
    """Print the address, and serve until the process is terminated."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Ingestion) as server:
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
