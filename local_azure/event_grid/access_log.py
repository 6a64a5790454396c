"""Azurite's access log: which lines are writes that Event Grid would tell of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import parse_qs, quote, unquote

Api = Literal["PutBlob", "PutBlockList", "CopyBlob", "DeleteBlob"]

_LINE = re.compile(r'^\S+ - - \[[^\]]*\] "(?P<method>[A-Z]+) (?P<target>\S+) HTTP/[\d.]+" (?P<status>\d{3}) ')

_CREATED, _ACCEPTED = "201", "202"


@dataclass(frozen=True, kw_only=True)
class StorageWrite:
    """One successful write to a blob."""

    api: Api
    container: str
    blob: str
    """Decoded."""

    @property
    def encoded_path(self) -> str:
        """``container/blob`` as it stands in a URL."""
        return f"{self.container}/{quote(self.blob, safe='/~')}"


def parse_line(line: str, account: str) -> StorageWrite | None:
    """The write to ``account`` of which ``line`` tells, or None."""
    match = _LINE.match(line)
    if not match:
        return None
    path, _, query_text = match["target"].partition("?")
    parts = path.split("/", maxsplit=3)
    # ['', account, container, blob]; less is a request to a container or to the account.
    if len(parts) != 4 or parts[1] != account or not parts[3]:  # noqa: PLR2004 (explained above)
        return None
    api = _api(match["method"], match["status"], parse_qs(query_text, keep_blank_values=True))
    return StorageWrite(api=api, container=unquote(parts[2]), blob=unquote(parts[3])) if api else None


def _api(method: str, status: str, query: dict[str, list[str]]) -> Api | None:
    """The operation's name, None for what raises no event. A SAS or a time-out in the query does not matter."""
    operation = query.get("comp", [""])[0]
    if "restype" in query or "snapshot" in query or "versionid" in query:
        return None
    known: dict[tuple[str, str, str], Api] = {
        ("PUT", "", _CREATED): "PutBlob",
        ("PUT", "blocklist", _CREATED): "PutBlockList",
        ("PUT", "", _ACCEPTED): "CopyBlob",
        ("DELETE", "", _ACCEPTED): "DeleteBlob",
    }
    return known.get((method, operation, status))
