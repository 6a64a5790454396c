r"""Keys of table rows.

Azure tables take no ``#``, ``/``, ``\``, ``?`` and control characters in keys, and at most 512 characters.
Names are therefore escaped, and joined with ``|``, which no escaped name contains. Keys are never decoded:
every row holds its names as columns.
"""

from __future__ import annotations

import hashlib
import string
from datetime import UTC, datetime, timedelta

MAX_NAME_CHARS = 200
"""Two names, a bucket and separators fit into 512 characters; a run id of 255 has a key of its own."""

_DIGEST_CHARS = 32
_SAFE = frozenset((string.ascii_letters + string.digits + "-_.").encode())
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_END_OF_TIME_US = 10**17 - 1


def escaped(name: str, *, max_chars: int = MAX_NAME_CHARS) -> str:
    """Return a name as part of a key: other than letters, digits and ``-_.`` becomes ``~XX``, byte by byte.

    The tilde, because a percent sign in a key is decoded once too often by some clients. A name that is too long
    keeps its beginning and ends in its digest.
    """
    encoded = name.encode("utf-8", "surrogatepass")
    text = "".join(chr(byte) if byte in _SAFE else f"~{byte:02X}" for byte in encoded)
    if len(text) <= max_chars:
        return text
    digest = hashlib.sha256(encoded).hexdigest()[:_DIGEST_CHARS]
    return f"{text[: max_chars - _DIGEST_CHARS - 2]}~~{digest}"


def joined(*parts: str) -> str:
    """Join escaped parts into one key."""
    return "|".join(parts)


def after(prefix: str) -> str:
    """Return the least key that is greater than every ``prefix|…``."""
    return prefix + chr(ord("|") + 1)


def ascending(time: datetime) -> str:
    """Return a time so that keys sort with the oldest first; microseconds are kept."""
    return f"{_microseconds(time):017d}"


def descending(time: datetime) -> str:
    """Return a time so that keys sort with the newest first; microseconds are kept."""
    return f"{_END_OF_TIME_US - _microseconds(time):017d}"


def _microseconds(time: datetime) -> int:
    if time.tzinfo is None:
        raise ValueError(f"time should be aware, was {time.isoformat()}")
    return (time - _EPOCH) // _MICROSECOND
