"""What opens an account does not belong on a screen or in a log: addresses are shown without it."""

from __future__ import annotations

import re

_SECRETS = re.compile(
    r"""(?P<before>
        (?:\b|%3F|%26)sig(?:=|%3D)                # of a signed address, also of one that is mistyped
        | \b(?:AccountKey|SharedAccessSignature)=
        | ://[^/?\#\s:@]*:(?=[^/?\#\s]*@)  # a password before the host
    )[^&@;'"\s]+""",
    re.VERBOSE | re.IGNORECASE,
)


def shown_address(address: str) -> str:
    """Return an address as far as it may be shown: what it signs itself with comes behind."""
    return without_secrets(re.split(r"[?#]", address)[0])


def without_secrets(text: str) -> str:
    """Return a text in which every signature, key and password is three dots."""
    return _SECRETS.sub(r"\g<before>…", text)
