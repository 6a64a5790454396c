"""Text that is safe to print: without secrets and terminal escapes, and with figures that people can read."""

from __future__ import annotations

import re
from typing import Any

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_CONTROLS = {
    **{code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n\r"},
    **{code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))},
    ord("\r"): "\n",
}
"""Characters that move a terminal's cursor or reverse the direction of text → what is printed instead."""
_SECRETS = re.compile(
    r"""(?P<before>
        (?:\b|%3F|%26)sig(?:=|%3D)                # in a signed URL, also in a mistyped one
        | \b(?:AccountKey|SharedAccessSignature)=
        | ://[^/?\#\s:@]*:(?=[^/?\#\s]*@)  # a password before the host
    )[^&@;'"\s]+""",
    re.VERBOSE | re.IGNORECASE,
)
_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def strip_escapes(value: Any) -> Any:
    """Strip terminal escapes from untrusted text, or from every text of a JSON value.

    Colours are removed; other control characters are spelt out as escape sequences.
    """
    if isinstance(value, str):
        return _COLOURS.sub("", value).replace("\r\n", "\n").translate(_CONTROLS)
    if isinstance(value, list):
        return [strip_escapes(each) for each in value]
    if isinstance(value, dict):
        return {strip_escapes(key): strip_escapes(each) for key, each in value.items()}
    return value


def one_line(name: str) -> str:
    """Return a path on one line, its control characters spelt out."""
    return name if name.isprintable() else name.encode("unicode_escape").decode("ascii")


def mask_secrets(text: str) -> str:
    """Replace every signature, account key and password in a text by three dots."""
    return _SECRETS.sub(r"\g<before>…", text)


def public_url(url: str) -> str:
    """Return a URL without its query, which may hold a signature."""
    return mask_secrets(re.split(r"[?#]", url)[0])


def readable_bytes(num_bytes: int) -> str:
    """Return a number of bytes in the largest unit that it fills: ``1.5 MiB``."""
    for unit, size in _UNITS:
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes} bytes"
