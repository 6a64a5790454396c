"""Whether a publisher may publish: the topic's key, or a signature made with it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import parse_qs, unquote


def may_publish(headers: Mapping[str, str], key: str, now: datetime) -> bool:
    """Whether ``headers`` carry ``key``, or a signature that is valid at ``now``; anyone may without a key."""
    if not key:
        return True
    given = headers.get("aeg-sas-key", "")
    token = headers.get("aeg-sas-token", "") or headers.get("Authorization", "").removeprefix(
        "SharedAccessSignature "
    )
    return hmac.compare_digest(given.encode(), key.encode()) or _signed(token, key, now)


def _signed(token: str, key: str, now: datetime) -> bool:
    """`r={resource}&e={expiry}&s={signature}`, as `azure.eventgrid.generate_sas` makes it."""
    unsigned, separator, signature = token.rpartition("&s=")
    if not separator:
        return False
    try:
        secret = base64.b64decode(key, validate=True)
        expiry = datetime.strptime(parse_qs(unsigned)["e"][0][:19], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except (binascii.Error, KeyError, ValueError):
        return False
    expected = base64.b64encode(hmac.new(secret, unsigned.encode(), hashlib.sha256).digest())
    return hmac.compare_digest(unquote(signature).encode(), expected) and expiry > now
