"""State that survives a restart: numbered entries, and the events that a subscription must still deliver."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from itertools import dropwhile
from pathlib import Path
from typing import Any

DEFAULT_LIMIT = 20_000


class Journal:
    """An append-only list in a file of JSON lines. Each entry gets a `seq`, which increases by one."""

    def __init__(self, path: Path, *, limit: int = DEFAULT_LIMIT) -> None:
        self._path = path
        self._entries: deque[dict[str, Any]] = deque(_read(path), maxlen=limit)
        self.last_seq: int = self._entries[-1]["seq"] if self._entries else 0
        """Number of the newest entry; 0 before the first."""
        path.parent.mkdir(parents=True, exist_ok=True)
        # omits entries beyond the limit, and an incomplete last line
        replace_file(path, "".join(json.dumps(entry) + "\n" for entry in self._entries))
        self._file = path.open("a", encoding="utf-8")

    def append(self, entry: dict[str, Any]) -> int:
        """Store `entry` and return its number."""
        self.last_seq += 1
        numbered = {"seq": self.last_seq, **entry}
        self._entries.append(numbered)
        self._file.write(json.dumps(numbered) + "\n")
        self._file.flush()
        return self.last_seq

    def since(self, seq: int) -> list[dict[str, Any]]:
        """Return the stored entries with a number above `seq`, oldest first."""
        return list(dropwhile(lambda entry: entry["seq"] <= seq, self._entries))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _read(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        return
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):  # A kill cut off a last line without an end, so that it was never acknowledged.
                yield json.loads(line)


class Cursor:
    """The number of the last event seen, and of earlier events that are not delivered yet.

    `save` writes the changes. Events between the last save and a kill are delivered again: delivery is at least once,
    as in Event Grid.
    """

    def __init__(self, path: Path, *, newest: int) -> None:
        """Start after the topic's ``newest`` event if the cursor is new."""
        self._path = path
        self._changed = not path.is_file()
        saved = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        self.seen: int = saved.get("seen", newest)
        self.unfinished: set[int] = set(saved.get("unfinished", ()))

    def begin(self, seq: int) -> None:
        """Record that `seq` must be delivered."""
        self.seen = max(self.seen, seq)
        self.unfinished.add(seq)
        self._changed = True

    def skip(self, seq: int) -> None:
        """Record that this subscription does not deliver `seq`."""
        self.seen = max(self.seen, seq)
        self._changed = True

    def finish(self, seq: int) -> None:
        """Record that `seq` was delivered or dead-lettered."""
        self.unfinished.discard(seq)
        self._changed = True

    def save(self) -> None:
        """Write the changes, if there are any."""
        if not self._changed:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._path, json.dumps({"seen": self.seen, "unfinished": sorted(self.unfinished)}))
        self._changed = False


def replace_file(path: Path, text: str) -> None:
    """Write a file atomically."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)
