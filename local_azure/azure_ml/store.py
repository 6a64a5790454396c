"""Durable documents by ARM path, in one SQLite file."""

from __future__ import annotations

import json
import sqlite3
import threading
from pathlib import Path
from typing import Any

_SCHEMA = """
CREATE TABLE IF NOT EXISTS documents (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    path TEXT NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (kind, path)
)
"""

Document = dict[str, Any]


class Store:
    """Documents of a kind by path; paths compare without case, as ARM ids do. Safe between threads."""

    def __init__(self, file: Path) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.execute(_SCHEMA)

    def get(self, kind: str, path: str) -> Document | None:
        """Return one document; None where there is none."""
        with self._lock:
            row = self._connection.execute(
                "SELECT body FROM documents WHERE kind = ? AND path = ?", (kind, _normalised(path))
            ).fetchone()
        return None if row is None else _parsed(row[0])

    def put(self, kind: str, path: str, body: Document) -> bool:
        """Write one document; return whether it is new."""
        text = json.dumps(body)
        with self._lock:
            changed = self._connection.execute(
                "UPDATE documents SET body = ? WHERE kind = ? AND path = ?", (text, kind, _normalised(path))
            ).rowcount
            if changed:
                return False
            self._connection.execute(
                "INSERT INTO documents (kind, path, body) VALUES (?, ?, ?)", (kind, _normalised(path), text)
            )
            return True

    def below(self, kind: str, prefix: str) -> list[Document]:
        """Return the documents whose path starts with `prefix`, oldest first."""
        start = _normalised(prefix)
        with self._lock:
            rows = self._connection.execute(
                "SELECT body FROM documents WHERE kind = ? AND substr(path, 1, ?) = ? ORDER BY sequence",
                (kind, len(start), start),
            ).fetchall()
        return [_parsed(row[0]) for row in rows]

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()


def _normalised(path: str) -> str:
    return path.lower()


def _parsed(text: str) -> Document:
    document: Document = json.loads(text)
    return document
