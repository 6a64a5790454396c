"""The content of a workspace: documents by ARM path in one SQLite file, and the names in those paths."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COMPUTES, DATASTORES = "computes", "datastores"
DEFAULT_CONTAINER = "azureml"
BUILT_IN_DATASTORES = ("workspaceblobstore", "workspaceartifactstore")

WORKSPACE_ID = re.compile(
    r"/subscriptions/(?P<subscription>[^/]+)/resourceGroups/(?P<group>[^/]+)"
    r"/providers/Microsoft\.MachineLearningServices/workspaces/(?P<workspace>[^/]+)",
    re.IGNORECASE,
)
_ASSET_ID = re.compile(
    WORKSPACE_ID.pattern + r"/(?P<kind>\w+)/(?P<name>[^/]+)/versions/(?P<version>[^/]+)", re.IGNORECASE
)

Document = dict[str, Any]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS documents (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    path TEXT NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (kind, path)
)
"""


class Store:
    """Documents of a kind by path; thread-safe. Paths compare without case, like ARM ids."""

    def __init__(self, file: Path) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")
        self._connection.execute(_SCHEMA)

    def get(self, kind: str, path: str) -> Document | None:
        """Return one document; None if there is none."""
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

    def delete(self, kind: str, path: str) -> None:
        """Remove one document, if there is one."""
        with self._lock:
            self._connection.execute("DELETE FROM documents WHERE kind = ? AND path = ?", (kind, _normalised(path)))

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


def asset_name(asset_id: str) -> str:
    """Return the name in a versioned asset's ARM id. Raises ValueError for other text."""
    match = _ASSET_ID.fullmatch(asset_id)
    if match is None:
        raise ValueError(f"{asset_id!r} is not the ARM id of an asset version, …/versions/N")
    return match["name"]


def workspace_parts(workspace_id: str) -> Mapping[str, str]:
    """Return subscription, group and workspace in a workspace's ARM id."""
    match = WORKSPACE_ID.fullmatch(workspace_id)
    if match is None:
        raise ValueError(f"{workspace_id!r} is not the ARM id of a workspace")
    return match.groupdict()


def datastore_document(store: Store, workspace_id: str, name: str, workspace_account: str) -> Document | None:
    """Return the properties of a datastore; the two built-in ones need no registration."""
    document = store.get(DATASTORES, f"{workspace_id}/datastores/{name}")
    if document is not None:
        return dict(document["properties"])
    if name.lower() not in BUILT_IN_DATASTORES:
        return None
    return {
        "datastoreType": "AzureBlob",
        "isDefault": name.lower() == "workspaceblobstore",
        "credentials": {"credentialsType": "None"},
        "accountName": workspace_account,
        "containerName": DEFAULT_CONTAINER,
        "endpoint": "core.windows.net",
        "protocol": "https",
        "serviceDataAccessAuthIdentity": "None",
        "tags": {},
        "properties": {},
    }
