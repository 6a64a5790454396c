"""Figures and names as people read them."""

from __future__ import annotations

import re
from typing import Any

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_OBEYED = {
    **{code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n\r"},
    **{code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))},
    ord("\r"): "\n",
}
"""What moves a terminal's cursor or turns its text around, and what is shown of it."""
_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def readable_bytes(num_bytes: int) -> str:
    """Return a number of bytes in the largest unit that it fills."""
    for unit, size in _UNITS:
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes} bytes"


def one_line(name: str) -> str:
    """Return a path whole, but on one line and without what a terminal would obey."""
    return name if name.isprintable() else name.encode("unicode_escape").decode("ascii")


def harmless(value: Any) -> Any:
    """Return what others wrote, a text or JSON of texts, without colours and what a terminal would obey."""
    if isinstance(value, str):
        return _COLOURS.sub("", value).replace("\r\n", "\n").translate(_OBEYED)
    if isinstance(value, list):
        return [harmless(each) for each in value]
    return {harmless(key): harmless(each) for key, each in value.items()} if isinstance(value, dict) else value


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
