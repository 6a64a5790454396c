"""Rendering of the pages: templates in which every text from outside is escaped, masked and kept on one line."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse, Response

from function_app.notify.messages import in_words
from function_app.web.drawing import shares, stroke
from shared.safe_text import mask_secrets, one_line, readable_bytes, several_lines

FOLDER = Path(__file__).resolve().parent
STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
"""The files that pages load, all of them; each page names them with a digest of their content."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # forms state their origin by it
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
MAX_TEXT_CHARS = 2000
"""Longest text that a page shows in one place."""
_UNITS = ((86400, "days"), (3600, "hours"), (60, "minutes"))


def page(template: str, *, status: int = 200, **members: Any) -> Response:
    """Return a page, which nothing between here and the browser may keep."""
    text = _environment().get_template(template).render(**members)
    return HTMLResponse(text, status_code=status, headers={**HEADERS, "Cache-Control": "no-store"})


def static_file(name: str) -> Response:
    """Return a static file. Its address has a digest, so browsers may keep it for a year."""
    headers = {**HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}
    return Response((FOLDER / "static" / name).read_bytes(), media_type=STATIC[name], headers=headers)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_safe,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "duration": _duration,
        "segment": _segment,
        "number": _number,
        "size": readable_bytes,
        "time": _time,
        "age": _age,
        "log_line": _log_line,
        "coded": _coded,
        "words": lambda text: str(text).replace("_", " "),
        "shares": shares,
        "stroke": stroke,
    }
    made.globals["asset"] = _asset
    return made


def _safe(value: Any) -> Any:
    """Return what a template prints: a text without secrets and control characters, bounded; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    text = one_line(mask_secrets(value))
    return text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 1] + "…"


def _coded(text: str) -> Markup:
    """Return a text with what stands in backquotes as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(_safe(text)))))  # noqa: S704 (it is escaped)


def _segment(text: object) -> str:
    """Return a text as one segment of a path."""
    return quote(str(text), safe="")


def _number(value: float) -> str:
    """Return a number for people: from 1,000 and integers without decimals, others with four significant digits."""
    is_whole = float(value).is_integer() or abs(value) >= 1000  # noqa: PLR2004
    return f"{round(value):,}" if is_whole and abs(value) < 1e15 else f"{value:.4g}"  # noqa: PLR2004


def _log_line(line: str) -> str:
    """Return a line of a log without colours, its tabs as spaces."""
    return several_lines(line).expandtabs(4).replace("\n", " ")


def _duration(seconds: float) -> str:
    """Return a duration in words: in seconds below two minutes."""
    return f"{seconds:.0f} s" if seconds < 120 else in_words(seconds)  # noqa: PLR2004


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _age(moment: datetime, now: datetime) -> str:
    """Return how long ago something was, in words."""
    past_s = max(0.0, (now - moment).total_seconds())
    for unit_s, unit in _UNITS:
        if past_s >= 2 * unit_s:
            return f"{past_s / unit_s:.0f} {unit} ago"
    return f"{past_s:.0f} s ago"


@cache
def _asset(name: str) -> str:
    """Return the address of a static file, which changes with its content."""
    digest = hashlib.sha256((FOLDER / "static" / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?{digest}"


def histogram(counts: Iterable[tuple[str, int]], most: int) -> list[tuple[str, int]]:
    """Return the most frequent labels, in the order of their names: numbers as numbers."""
    ranked = sorted(counts, key=lambda item: (-item[1], item[0]))[:most]
    return sorted(ranked, key=lambda item: (_as_number(item[0]), item[0]))


def _as_number(label: str) -> float:
    """Return a label's number; infinity for one that is none, so that numbers come first."""
    return float(label) if label.isascii() and label.isdecimal() else math.inf
