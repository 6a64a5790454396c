"""Make untrusted text safe to show and to log: mask secrets and escape control characters.

A blob's name, a log line or a response body may contain line breaks and terminal escapes. Without escaping, it could
forge lines of a history or a log, or change the content of a terminal.
"""

from __future__ import annotations

import logging
import re
from typing import Any

MAX_TEXT_CHARS = 200
"""Maximum length of text in `shown`, because text from a hostile file must not fill the ledger."""
MAX_VALUE_CHARS = 36
"""Maximum length of a setting's value in messages: a GUID. Keys and signatures are longer."""
SEVERAL_LINES = frozenset({"log_tail", "log_text", "payload"})
"""Members of JSON objects with texts of several lines; each line is printed with an indent."""
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
    """Return a text on one line, with unprintable characters escaped."""
    return text if text.isprintable() else _spelt_out(text)


def shown(text: str) -> str:
    """Return a text on one line and bounded."""
    return one_line(text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 1] + "…")


def several_lines(text: str) -> str:
    """Return a text like `one_line`, but with its line breaks and tabs, and without colours."""
    if text.isprintable():
        return text
    return _spelt_out(_LINE_ENDS.sub("\n", _COLOURS.sub("", text)), keep="\n\t")


def log_text(text: str) -> str:
    """Return the text of a log record: secrets masked, and every line after the first one indented.

    A line that begins in the first column is thus always the start of a record. The function is idempotent.
    """
    first, *rest = several_lines(mask_secrets(text)).split("\n")
    if all(line.startswith(INDENT) for line in rest):
        return "\n".join([first, *rest])
    return "\n".join([first, *(INDENT + line for line in rest)])


def safe_json(value: Any) -> Any:
    """Return a JSON value with safe texts: without secrets, and on one line except for `SEVERAL_LINES`."""
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
    """Mask the secrets in a text, and everything after the host of a URL: a webhook's path is a secret too."""
    return _ADDRESSES.sub(r"\g<host>/…", mask_secrets(text))


def setting_value(value: str) -> str:
    """Return a setting's wrong value for a message; only its length if it may be a secret."""
    if len(value) > MAX_VALUE_CHARS and not value.startswith("/"):
        return f"a text of {len(value)} characters"
    return repr(mask_addresses(value))


def public_url(url: str) -> str:
    """Return a URL without its query, which may contain a signature."""
    return mask_secrets(re.split(r"[?#]", url)[0])


def make_logging_safe() -> None:
    """From now on, apply `log_text` to the message and stack trace of every record that this process logs."""
    make = logging.getLogRecordFactory()
    if getattr(make, "is_safe", False):
        return

    def safe_record(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        try:
            text = record.getMessage()
        except (TypeError, ValueError):
            return record  # Logging itself reports arguments that do not fit.
        if (safe := log_text(text)) != text:
            record.msg, record.args = safe, ()
        if record.exc_info:
            record.exc_text = log_text("\n" + logging.Formatter().formatException(record.exc_info))[1:]
        return record

    safe_record.is_safe = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(safe_record)


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: ``1 shard``, ``1,000 shards``. ``plural`` is needed if it is not noun + s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def readable_bytes(num_bytes: int) -> str:
    """Return a number of bytes in the largest suitable unit: ``1.5 MiB``."""
    for unit, size in _UNITS:
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes} bytes"
