"""What a version, a run or a blob waits for now: computed from the current state, not from the history."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime

from function_app.domain.records import (
    DatasetVersion,
    DeadLetterState,
    NotificationState,
    RunRecord,
    ShardState,
    is_unfinished,
)
from function_app.domain.run_states import SETTLED, RunState
from function_app.domain.shard_paths import ShardPlace
from function_app.explain.description import VersionDescription, describe_version
from function_app.ingest.closing import starts_run
from function_app.notify.messages import in_words
from function_app.runs.admission import place_in_line, what_lifts
from function_app.services import Services
from shared.safe_text import counted
from shared.shard_names import is_among

MAX_NAMED = 10
MAX_LETTERS = 1000


def awaited_of_version(version: DatasetVersion, services: Services) -> Iterator[str]:
    """Yield what a version waits for: shards, its closing, its run. Raises NotFoundError if it is unknown."""
    yield from awaited_of(describe_version(version, services), services)


def awaited_of(described: VersionDescription, services: Services) -> Iterator[str]:
    """Yield what a version that is described already waits for."""
    version = described.dataset_version
    if described.generation is None:
        yield from _awaited_of_open(described)
    elif _owes_run(described, services):
        yield (
            f"the run of generation {described.generation.number}: its request is in the queue training-requested, "
            "or the next sweep sends it"
        )
    elif described.pipeline.data.layout.has_any_names and (missing := _missing(described)):
        more = f" and {len(missing) - MAX_NAMED} more" if len(missing) > MAX_NAMED else ""
        yield f"for its next generation: {', '.join(missing[:MAX_NAMED])}{more}"
    if described.hold:
        yield f"a corrected upload: it is on hold, because {described.hold}; {what_lifts(version)}"
    for run in described.runs:
        yield from (f"run {run.run_id}: {text}" for text in awaited_of_run(run, services))
    yield from _unsent(str(version), services)
    yield from _dead_letters(lambda subject: subject == str(version) or subject.startswith(f"{version}/"), services)


def _owes_run(described: VersionDescription, services: Services) -> bool:
    closing = described.generation
    is_unclaimed = closing is not None and closing.auto_run_id is None
    return closing is not None and is_unclaimed and starts_run(described.pipeline, closing, services.ledger)


def awaited_of_run(run: RunRecord, services: Services) -> Iterator[str]:
    """Yield what a run waits for: its turn, its nodes, its end, the next attempt, its notifications."""
    if is_unfinished(run) and (outage := services.outage(run.dataset_version.dataset)):
        yield f"its pipeline file to be corrected: {outage}"
    if run.state not in SETTLED:
        if run.cancel_requested_at is not None:
            yield f"its end: its cancellation was requested at {_time(run.cancel_requested_at)}"
        yield _NEXT[run.state](run, services)
    elif run.next_run_id is not None:
        yield f"the end of attempt {run.next_run_id}, which continues it"
    yield from _unsent(run.run_id, services)
    yield from _dead_letters(lambda subject: subject == run.run_id, services)


def awaited_of_blob(path: str, place: ShardPlace | None, services: Services) -> Iterator[str]:
    """Yield what a blob waits for: its event, or a corrected upload; nothing if it is not a shard."""
    if outage := services.outage(path.partition("/")[0]):
        yield f"its pipeline file to be corrected: {outage}"
    if place is not None:
        verdict = services.ledger.shard(place.dataset_version, place.shard.split, place.shard.index)
        facts = services.shards.facts(path)
        if facts is None:
            yield "an upload: there is no such blob now"
        elif verdict is None or verdict.name != place.shard.name or verdict.etag != facts.etag:
            ripe = facts.last_modified + services.sweep_grace
            yield f"its event, or the next sweep after {_time(ripe)}: the current content has no verdict"
        elif verdict.state is ShardState.REJECTED:
            yield "a corrected upload; the current content was rejected"
    yield from _dead_letters(lambda subject: subject == path, services)


def _awaited_of_open(described: VersionDescription) -> Iterator[str]:
    missing = _missing(described)
    rejected = [row.name for split in described.splits for row in split.rejected]
    absent = [name for name in missing if not is_among(name, rejected)]
    for row in [row for split in described.splits for row in split.rejected][:MAX_NAMED]:
        reason = row.reasons[0].message if row.reasons else "no reason is recorded"
        yield f"a corrected upload of {row.name}, which was rejected: {reason}"
    if absent:
        more = f" and {len(absent) - MAX_NAMED} more" if len(absent) > MAX_NAMED else ""
        patience = in_words(described.pipeline.watch.stalled_after_s)
        yield (
            f"{len(absent)} shard{'' if len(absent) == 1 else 's'}: {', '.join(absent[:MAX_NAMED])}{more}; a "
            f"notification is sent if none arrives within {patience}"
        )
    elif missing:
        return
    elif described.refusal:
        yield f"a corrected set of shards; the current one was rejected: {described.refusal[0]}"
    else:
        yield "its closing: all shards are accepted, and the next sweep closes it"


def _missing(described: VersionDescription) -> list[str]:
    return [name for split in described.splits for name in split.missing]


def _turn(run: RunRecord, services: Services) -> str:
    if place := place_in_line(run, services.ledger.run_queue()):
        return f"its turn: it {place}"
    if run.not_before is not None:
        return f"its submission, not before {_time(run.not_before)}"
    return "its submission: its request is in the queue training-requested, or the next sweep takes it up"


def _claim(run: RunRecord, _: Services) -> str:
    until = f", until {_time(run.claimed_until)} at most" if run.claimed_until else ""
    return f"Azure ML's answer to its submission: a handler works on it{until}; then the sweep repeats it"


def _nodes(run: RunRecord, services: Services) -> str:
    pipeline = services.pipelines.get(run.dataset_version.dataset)
    since = run.submitted_at or run.state_since
    warning = f"; a notification is sent after {in_words(pipeline.watch.queued_after_s)}" if pipeline else ""
    return f"{counted(run.num_nodes, 'node')} of cluster {run.spec.get('compute')}, since {_time(since)}{warning}"


def _end(run: RunRecord, _: Services) -> str:
    limit = run.spec.get("timeout_s")
    bound = f"; Azure ML ends it after {in_words(limit)}" if isinstance(limit, int) else ""
    return f"the end of its job, running since {_time(run.started_at or run.state_since)}{bound}"


def _decision(run: RunRecord, _: Services) -> str:
    if run.sweep_id is not None:
        return f"the other runs of option sweep {run.sweep_id}: once all have ended, the best one is registered"
    return "its requirements: its training report is read, and its model registered or not"


_NEXT: Mapping[RunState, Callable[[RunRecord, Services], str]] = {
    RunState.PLANNED: _turn,
    RunState.SUBMITTING: _claim,
    RunState.SUBMITTED: _nodes,
    RunState.QUEUED: _nodes,
    RunState.RUNNING: _end,
    RunState.COMPLETED: _decision,
}
"""What a run waits for in each state that is not an end."""


def _unsent(subject: str, services: Services) -> Iterator[str]:
    for row in services.ledger.notifications(subject):
        if row.state is not NotificationState.SENT:
            error = f"; try {row.tries} failed: {row.last_error}" if row.last_error else ""
            when = f", not before {_time(row.not_before)}" if row.not_before else ""
            yield f"the notification of {row.outcome} to {row.recipient}{when}{error}"


def _dead_letters(is_about: Callable[[str], bool], services: Services) -> Iterator[str]:
    for letter in services.ledger.dead_letters(limit=MAX_LETTERS):
        if letter.state is DeadLetterState.WAITING and is_about(letter.subject):
            name = letter.dead_letter_id
            yield f"a replay of dead letter {name} ({letter.error[:200]}): landfall dead-letters replay {name}"


def _time(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"
