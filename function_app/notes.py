"""Small rows of the ledger beside its records: counters, marks, and the stories of everything below a name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from function_app.ledger import Decision


class Notes(Protocol):
    """The part of the ledger that keeps them. Every method may raise ServiceUnavailableError."""

    def count(self, name: str, key: str) -> None:
        """Add one to a counter; its name and key are the caller's, and there should be few of them."""
        ...

    def counts(self, name: str) -> Mapping[str, int]:
        """Return the counters of a name, by key."""
        ...

    def mark(self, name: str) -> str | None:
        """Return a mark, None where there is none."""
        ...

    def set_mark(self, name: str, text: str) -> None:
        """Write a mark over the one before; of several writers at once one wins."""
        ...

    def decisions_below(self, prefix: str, *, limit: int) -> list[Decision]:
        """Return the lines of all subjects that begin with ``prefix``, oldest first; at most about ``limit``."""
        ...
