"""Whether a part answers yet."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterable
from pathlib import Path

import httpx

ANSWER_S = 2.0


def listening(ports: Iterable[int]) -> bool:
    """Whether something accepts connections on every one of the ports."""
    for port in ports:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), ANSWER_S):
            continue
        return False
    return True


def answers(url: str, *, ca_file: Path | None = None) -> bool:
    """Whether the address answers a GET with success. A certificate that is not there yet is a no."""
    try:
        verify = ssl.create_default_context(cafile=str(ca_file)) if ca_file else True
        with httpx.Client(verify=verify, trust_env=False, timeout=ANSWER_S) as client:
            return client.get(url).is_success
    except (httpx.HTTPError, OSError):
        return False
