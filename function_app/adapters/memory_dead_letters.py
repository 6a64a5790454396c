"""A source of dead letters in memory: shipped for tests and trials, under the adapters' contract tests."""

from __future__ import annotations

from collections.abc import Iterator

from function_app.dead_letters import GivenUp


class MemoryDeadLetterSource:
    """Implements DeadLetterSource; ``lying`` is what was given up and not yet taken."""

    def __init__(self, *lying: GivenUp) -> None:
        self.lying = list(lying)

    def given_up(self, *, limit: int) -> Iterator[GivenUp]:
        """See DeadLetterSource."""
        for one in self.lying[:limit]:
            yield one
            self.lying.remove(one)
