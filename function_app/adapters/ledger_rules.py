"""What both ledgers decide in the same way, whatever they store their rows in."""

from __future__ import annotations

from function_app.domain.errors import IllegalTransitionError
from function_app.domain.records import RunRecord, ShardRecord, ShardState
from function_app.domain.run_states import SETTLED, TRANSITIONS, RunState


def same_verdict(stored: ShardRecord | None, shard: ShardRecord) -> bool:
    """Whether a verdict repeats the one on record: the same bytes were judged, with the same outcome."""
    return stored is not None and (stored.etag, stored.state) == (shard.etag, shard.state)


def counter_change(stored: ShardRecord | None, shard: ShardRecord) -> int:
    """By how much the accepted shards of a bucket change when a verdict replaces the one on record: -1, 0 or 1."""
    was_accepted = stored is not None and stored.state is ShardState.ACCEPTED
    return int(shard.state is ShardState.ACCEPTED) - int(was_accepted)


def check_transition(run_id: str, current: RunState, target: RunState) -> None:
    """Raise IllegalTransitionError where a run's state does not lead to another; staying is always legal."""
    if target is not current and target not in TRANSITIONS[current]:
        raise IllegalTransitionError(run_id, current, target)


def is_unfinished(run: RunRecord) -> bool:
    """Whether a run still needs care: it is not settled, or people should be told how it ended and were not."""
    if run.state not in SETTLED:
        return True
    return run.notified_at is None and run.next_run_id is None and run.state is not RunState.SUPPRESSED
