"""Text from outside, made safe to show and to log: its secrets masked, its control characters spelt out.

A blob's name, a log line or an answer's body may hold line breaks and terminal escapes. Shown as it is, it could
forge lines of a history or a log, or change what a terminal shows.
"""

from __future__ import annotations

import logging
import re
from typing import Any

MAX_TEXT_CHARS = 200
"""Longest text that `shown` returns unescaped: text from a hostile file must not fill the ledger."""
MAX_VALUE_CHARS = 36
"""Longest value of a setting that a message repeats: a GUID; keys and signatures are longer."""
SEVERAL_LINES = frozenset({"log_tail", "log_text", "payload"})
"""Members of JSON objects whose texts have several lines; each line is printed with an indent."""
INDENT = "    "

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_LINE_ENDS = re.compile(r"\r\n?")
_SECRETS = re.compile(
    r"""(?P<before>
        (?:\b|%3F|%26)sig(?:=|%3D)                # in a signed URL, also in a mistyped one
        | [?&](?:code|key|token|access_token)=    # in a function's or webhook's URL
        | \b(?:AccountKey|SharedAccessKey|SharedAccessSignature)=
        | \bBearer[ ](?=[\w.~+/-]{20})
        | ://[^/?\#\s:@]*:(?=[^/?\#\s]*@)  # a password before the host
    )[^&@;'"\s]+""",
    re.VERBOSE | re.IGNORECASE,
)
_ADDRESSES = re.compile(r"(?P<host>\bhttps?://[^/?#\s'\"]+)[/?#][^\s'\"]+", re.IGNORECASE)
_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def one_line(text: str) -> str:
    """Return a text on one line, with every character spelt out that cannot be printed."""
    return text if text.isprintable() else _spelt_out(text)


def shown(text: str) -> str:
    """Return a text on one line, and bounded."""
    return one_line(text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 1] + "…")


def several_lines(text: str) -> str:
    """Return a text with its line breaks and tabs, without colours, and otherwise as `one_line` returns it."""
    if text.isprintable():
        return text
    return _spelt_out(_LINE_ENDS.sub("\n", _COLOURS.sub("", text)), keep="\n\t")


def log_text(text: str) -> str:
    """Return the text of a log record: secrets masked, and every line after the first one indented.

    So a line that begins in the first column is always a record of its own. The result of the result is the same.
    """
    first, *rest = several_lines(mask_secrets(text)).split("\n")
    if all(line.startswith(INDENT) for line in rest):
        return "\n".join([first, *rest])
    return "\n".join([first, *(INDENT + line for line in rest)])


def safe_json(value: Any) -> Any:
    """Return a JSON value whose texts are safe to show: without secrets, and on one line except `SEVERAL_LINES`."""
    if isinstance(value, str):
        return one_line(mask_secrets(value))
    if isinstance(value, list | tuple):
        return [safe_json(each) for each in value]
    if isinstance(value, dict):
        return {one_line(mask_secrets(key)): _member(key, each) for key, each in value.items()}
    return value


def _member(key: str, value: Any) -> Any:
    return several_lines(mask_secrets(value)) if key in SEVERAL_LINES and isinstance(value, str) else safe_json(value)


def _spelt_out(text: str, keep: str = "") -> str:
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode("ascii") for each in text
    )


def mask_secrets(text: str) -> str:
    """Replace every signature, key and password in a text by three dots."""
    return _SECRETS.sub(r"\g<before>…", text)


def mask_addresses(text: str) -> str:
    """Mask the secrets in a text, and all that follows the host of an address: a webhook's path is a secret too."""
    return _ADDRESSES.sub(r"\g<host>/…", mask_secrets(text))


def setting_value(value: str) -> str:
    """Return a setting's wrong value for a message; of one that may be a secret, only its length."""
    if len(value) > MAX_VALUE_CHARS and not value.startswith("/"):
        return f"a text of {len(value)} characters"
    return repr(mask_addresses(value))


def public_url(url: str) -> str:
    """Return a URL without its query, which may hold a signature."""
    return mask_secrets(re.split(r"[?#]", url)[0])


def make_logging_safe() -> None:
    """Apply `log_text` to the message and the stack trace of every record that this process logs from now on."""
    make = logging.getLogRecordFactory()
    if getattr(make, "is_safe", False):
        return

    def safe_record(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        try:
            text = record.getMessage()
        except (TypeError, ValueError):
            return record  # arguments that do not fit; logging reports that itself
        if (safe := log_text(text)) != text:
            record.msg, record.args = safe, ()
        if record.exc_info:
            record.exc_text = log_text("\n" + logging.Formatter().formatException(record.exc_info))[1:]
        return record

    safe_record.is_safe = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(safe_record)


def readable_bytes(num_bytes: int) -> str:
    """Return a number of bytes in the largest unit that it fills: ``1.5 MiB``."""
    for unit, size in _UNITS:
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes} bytes"
