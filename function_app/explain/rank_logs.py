"""The log of one rank of a run, in parts of whole lines without secrets, for those who follow it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from function_app.domain.errors import LogUnreadableError, NotFoundError
from function_app.domain.jobs import LogPart, spec_from_json
from function_app.domain.records import RunRecord
from function_app.domain.run_states import RunState
from function_app.services import Services
from shared.progress import RankPlace, latest_place
from shared.safe_text import mask_secrets

MAX_PART_BYTES = 256 << 10
PLACE_WITHIN_BYTES = 64 << 10
"""A rank says where it runs at the beginning of its log."""
MAX_PLACES = 16
"""Ranks of one answer: each takes a few requests to Azure ML and to storage."""


@dataclass(frozen=True, kw_only=True)
class RankLog:
    """Lines of a rank's log."""

    run_id: str
    rank: int
    num_ranks: int
    log_text: str
    """Whole lines, secrets masked; the last line of a log that has ended may be without its end."""
    unfinished: str
    """The beginning of a line that is still being written; it comes again once it is complete."""
    next: int
    """Where the next part begins."""
    has_ended: bool
    """Whether nothing will follow."""
    place: RankPlace | None
    """Where the rank runs, if these lines say so."""
    problem: str | None
    """Why there is nothing to read."""


@dataclass(frozen=True, kw_only=True)
class RankPlaces:
    """Where ranks of a run ran, and whom they met, as each says in its own log."""

    run_id: str
    num_ranks: int
    places: tuple[RankPlace, ...]
    """Those that are known of at most 16 ranks."""
    problem: str | None
    """Why a rank's place is not known; of the first one if there are several."""
    next: int | None
    """The first rank of the next answer; null with the last one."""


def read_rank_places(run_id: str, first: int, services: Services) -> RankPlaces:
    """Return the places of the ranks from ``first`` on. Raises NotFoundError and ServiceUnavailableError."""
    run = services.ledger.run(run_id)
    if run is None:
        raise NotFoundError(f"run {run_id} does not exist")
    check_rank(run, first)
    end = min(num_ranks := ranks_of(run), first + MAX_PLACES)
    places, problems = list[RankPlace](), list[str]()
    for rank in range(first, end):
        part, problem = log_part(run, rank, 0, PLACE_WITHIN_BYTES, services)
        place = None if part is None else latest_place(_shown(part.content).splitlines())
        if place is not None and place.rank == rank:  # a script may print anything
            places.append(place)
            continue
        problems.append(problem or f"Rank {rank} does not say in its log where it runs.")
        if run.submitted_at is None:
            break
    return RankPlaces(
        run_id=run_id,
        num_ranks=num_ranks,
        places=tuple(places),
        problem=problems[0] if problems else None,
        next=end if end < num_ranks else None,
    )


def read_rank_log(run_id: str, rank: int, after: int, services: Services) -> RankLog:
    """Return the lines of a rank's log that begin at byte ``after`` or later. Raises NotFoundError."""
    run = services.ledger.run(run_id)
    if run is None:
        raise NotFoundError(f"run {run_id} does not exist")
    num_ranks = ranks_of(run)
    check_rank(run, rank)
    before = 1 if after else 0  # one byte more, to see whether a line begins here
    part, problem = log_part(run, rank, after - before, MAX_PART_BYTES, services)
    has_ended = run.ended_at is not None or run.state is RunState.SUPPRESSED
    part = part or LogPart(content=b"", start=after, size=after)
    begin, end = _whole_lines(part, before, is_final=has_ended)
    next_byte = max(part.start + end, min(after, part.size))
    text = _shown(part.content[begin:end])
    return RankLog(
        run_id=run_id,
        rank=rank,
        num_ranks=num_ranks,
        log_text=text,
        unfinished=_shown(part.content[end:]) if _is_last(part) else "",
        next=next_byte,
        has_ended=has_ended and next_byte >= part.size,
        place=latest_place(text.splitlines()),
        problem=problem,
    )


def ranks_of(run: RunRecord) -> int:
    """Return the number of ranks that a run's job asks for."""
    spec = spec_from_json(run.spec)
    return spec.num_nodes * spec.processes_per_node


def check_rank(run: RunRecord, rank: int) -> None:
    """Raise NotFoundError if a run has no such rank."""
    if rank >= (number := ranks_of(run)):
        ranks = f"{number} ranks, 0 to {number - 1}" if number > 1 else "one rank, 0"
        raise NotFoundError(f"run {run.run_id} has no rank {rank}: it has {ranks}")


def log_part(
    run: RunRecord, rank: int, after: int | None, max_bytes: int, services: Services
) -> tuple[LogPart | None, str | None]:
    """Return bytes of a rank's log, or why there are none. Raises ServiceUnavailableError."""
    if run.submitted_at is None or run.state is RunState.SUPPRESSED:
        return None, "The job has not been submitted, so it has no log."
    try:
        part = services.jobs.log_part(run.run_id, rank=rank, after=after, max_bytes=max_bytes)
    except LogUnreadableError as error:
        return None, f"The log cannot be read now: {error}"
    who = "The job" if rank == 0 else f"Rank {rank}"
    return part, None if part is not None else f"{who} has written no log{'' if run.ended_at else ' yet'}."


def place_of(run: RunRecord, rank: int, tail: LogPart | None, services: Services) -> RankPlace | None:
    """Return where a rank says that it runs: in ``tail`` if that is the whole log, otherwise read its beginning."""
    if tail is not None and tail.start:
        tail, _ = log_part(run, rank, 0, PLACE_WITHIN_BYTES, services)
    return None if tail is None else latest_place(lines_of(tail))


def lines_of(part: LogPart) -> Sequence[str]:
    """Return the lines of a part; one that begins before it is left out."""
    lines = part.content.decode(errors="replace").splitlines()
    return lines[1:] if part.start else lines


def _whole_lines(part: LogPart, before: int, *, is_final: bool) -> tuple[int, int]:
    """Return where whole lines begin and end in a part; what follows, if anything, is the beginning of a line.

    The caller chooses where a part begins, and could cut off the text by which a secret is recognised. So a line that
    began before the part is left out. If a line is longer than a part, its beginning is shown.
    """
    content, begin = part.content, before
    if before and content[:1] not in (b"\n", b"\r", b""):
        ends = [end for end in (content.find(b"\n"), content.find(b"\r")) if end >= 0]
        begin = min(ends) + 1 if ends else len(content)
    end = max(content.rfind(b"\n"), content.rfind(b"\r", 0, -1)) + 1  # the last byte may be half a line end
    is_too_long = end <= begin and len(content) >= MAX_PART_BYTES
    return begin, len(content) if is_too_long or (is_final and _is_last(part)) else max(begin, end)


def _is_last(part: LogPart) -> bool:
    return part.start + len(part.content) >= part.size


def _shown(content: bytes) -> str:
    return mask_secrets(content.decode(errors="replace"))
