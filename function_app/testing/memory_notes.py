"""Dead letters and notes in memory: the other half of the ledger in memory, under the same contract tests."""

from __future__ import annotations

import itertools
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from function_app.adapters.tables.bounds import bounded_dead_letter
from function_app.domain.errors import LedgerConflictError
from function_app.domain.records import DeadLetter, GivenUp, dead_letter_order


class MemoryNotes:
    """Implements DeadLetterLedger and Notes; the public attributes are there to be asserted on."""

    def __init__(self) -> None:
        self.dead_letter_rows: dict[str, DeadLetter] = {}
        self.counter_rows: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.mark_rows: dict[str, str] = {}
        self._revisions = itertools.count(1)
        self._lock = threading.RLock()

    def add_dead_letter(self, letter: DeadLetter) -> bool:
        """See DeadLetterLedger."""
        with self._lock:
            if letter.dead_letter_id in self.dead_letter_rows:
                return False
            stored = replace(bounded_dead_letter(letter), revision=self._revision())
            self.dead_letter_rows[letter.dead_letter_id] = stored
            return True

    def dead_letter(self, dead_letter_id: str) -> DeadLetter | None:
        """See DeadLetterLedger."""
        with self._lock:
            return self.dead_letter_rows.get(dead_letter_id)

    def save_dead_letter(self, letter: DeadLetter) -> DeadLetter:
        """See DeadLetterLedger."""
        with self._lock:
            stored = self.dead_letter_rows.get(letter.dead_letter_id)
            if stored is None or stored.revision != letter.revision:
                raise LedgerConflictError(
                    f"dead letter {letter.dead_letter_id} was changed, or is not there: read it again"
                )
            saved = replace(bounded_dead_letter(letter), revision=self._revision())
            self.dead_letter_rows[letter.dead_letter_id] = saved
            return saved

    def dead_letters(self, *, limit: int = 100) -> list[DeadLetter]:
        """See DeadLetterLedger."""
        with self._lock:
            return sorted(self.dead_letter_rows.values(), key=dead_letter_order)[:limit]

    def count(self, name: str, key: str) -> None:
        """See Notes."""
        with self._lock:
            self.counter_rows[name][key] += 1

    def counts(self, name: str) -> Mapping[str, int]:
        """See Notes."""
        with self._lock:
            return dict(self.counter_rows.get(name, {}))

    def mark(self, name: str) -> str | None:
        """See Notes."""
        with self._lock:
            return self.mark_rows.get(name)

    def set_mark(self, name: str, text: str) -> None:
        """See Notes."""
        with self._lock:
            self.mark_rows[name] = text

    def _revision(self) -> str:
        return str(next(self._revisions))


class MemoryDeadLetterSource:
    """Implements DeadLetterSource; ``lying`` is what was given up and not yet taken."""

    def __init__(self, *lying: GivenUp) -> None:
        self.lying = list(lying)

    def given_up(self, *, limit: int) -> Iterator[GivenUp]:
        """See DeadLetterSource."""
        for one in self.lying[:limit]:
            yield one
            self.lying.remove(one)
