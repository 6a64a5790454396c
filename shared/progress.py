"""Log lines with one JSON object each: the progress of the training, and the node of a rank."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

PREFIX = "LANDFALL_PROGRESS "
MAX_LINE_CHARS = 4096
RANK_PREFIX = "LANDFALL_RANK "
MAX_RANK_LINE_CHARS = 16384
MAX_HOSTS = 128
MAX_NAME_CHARS = 64


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The state of a training after an epoch (or within one)."""

    epoch: int
    """Number of finished epochs, 1 after the first one."""
    epochs: int
    step: int
    """Number of optimizer updates so far, over all epochs."""
    loss: float
    accuracy: float
    val_loss: float | None = None
    val_accuracy: float | None = None
    images_per_s: float | None = None
    """Throughput of all ranks together."""

    def to_line(self) -> str:
        """Return one log line."""
        return PREFIX + json.dumps(asdict(self))


def parse_progress(line: str) -> Progress | None:
    """Return the progress in a log line, None for other or garbled lines."""
    text = line.strip()
    if not text.startswith(PREFIX) or len(text) > MAX_LINE_CHARS:
        return None
    try:
        return Progress(**json.loads(text.removeprefix(PREFIX)))
    except (ValueError, TypeError, RecursionError):  # RecursionError for deeply nested brackets
        return None


@dataclass(frozen=True, kw_only=True)
class RankPlace:
    """Where a rank runs."""

    rank: int
    world_size: int
    node: int
    """Number of its node, from 0."""
    host: str
    nodes: tuple[str, ...] = ()
    """Addresses of the job's nodes, in the launcher's form."""
    met: tuple[str, ...] = ()
    """Hosts of the ranks with which it is connected; empty before the connection, and in a user's own script."""

    def to_line(self) -> str:
        """Return one log line."""
        return RANK_PREFIX + json.dumps(asdict(self))

    def in_words(self) -> str:
        """Return the place in words."""
        words = f"rank {self.rank} of {self.world_size} on host {self.host} (node {self.node})"
        if self.met:
            return f"{words}, has met the ranks of {', '.join(self.met)}"
        return f"{words}, nodes of the job: {', '.join(self.nodes)}" if self.nodes else words


def parse_rank_place(line: str) -> RankPlace | None:
    """Return the place in a log line, None for other or garbled lines."""
    text = line.strip()
    if not text.startswith(RANK_PREFIX) or len(text) > MAX_RANK_LINE_CHARS:
        return None
    try:
        place = RankPlace(**json.loads(text.removeprefix(RANK_PREFIX)))
        return RankPlace(
            rank=int(place.rank),
            world_size=int(place.world_size),
            node=int(place.node),
            host=str(place.host)[:MAX_NAME_CHARS],
            nodes=_names(place.nodes),
            met=_names(place.met),
        )
    except (ValueError, TypeError, RecursionError, OverflowError):
        return None


def latest_place(lines: Iterable[str]) -> RankPlace | None:
    """Return the last place in the lines of a log."""
    return next((place for line in reversed([*lines]) if (place := parse_rank_place(line))), None)


def _names(stated: Iterable[object]) -> tuple[str, ...]:
    return tuple(str(name)[:MAX_NAME_CHARS] for name in stated)[:MAX_HOSTS]
