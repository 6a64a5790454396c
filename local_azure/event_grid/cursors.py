"""What a subscription has still to deliver, kept over restarts."""

from __future__ import annotations

import json
from pathlib import Path


class Cursor:
    """The number of the last event looked at, and the earlier ones that are not done.

    Changes are written by ``save``. What happened between the last save and a kill is delivered again: at least
    once, like the real thing.
    """

    def __init__(self, path: Path, *, newest: int) -> None:
        """A new cursor starts after the topic's ``newest`` event."""
        self._path = path
        self._changed = not path.is_file()
        saved = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        self.seen: int = saved.get("seen", newest)
        self.unfinished: set[int] = set(saved.get("unfinished", ()))

    def begin(self, seq: int) -> None:
        """``seq`` will be delivered."""
        self.seen = max(self.seen, seq)
        self.unfinished.add(seq)
        self._changed = True

    def skip(self, seq: int) -> None:
        """``seq`` is not for this subscription."""
        self.seen = max(self.seen, seq)
        self._changed = True

    def finish(self, seq: int) -> None:
        """``seq`` was delivered or given up."""
        self.unfinished.discard(seq)
        self._changed = True

    def save(self) -> None:
        """Write the changes, if there are any."""
        if not self._changed:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps({"seen": self.seen, "unfinished": sorted(self.unfinished)}), encoding="utf-8")
        fresh.replace(self._path)
        self._changed = False
