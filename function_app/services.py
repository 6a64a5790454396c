"""What every step is given: the ports, the pipelines, the clock."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from function_app.config.pipeline_files import no_scripts
from function_app.config.pipelines import Pipeline
from function_app.config.settings import Slices
from function_app.domain.clock import utcnow
from function_app.domain.jobs import Workspace
from function_app.domain.records import HistoryEntry
from function_app.ports import (
    Clock,
    DeadLetterSource,
    DocumentStore,
    HistoryLedger,
    JobService,
    Ledger,
    MessageQueue,
    ModelRegistry,
    Notifier,
    RejectedCopies,
    RequestQueue,
    ShardStore,
)
from shard_validation import (
    DataRequirements,
    Paused,
    ShardSource,
    ShardVerdict,
    validate_shard,
    validate_shard_within,
)
from shard_validation.reasons import shown

logger = logging.getLogger(__name__)

ReadScript = Callable[[str], bytes]
Validate = Callable[[ShardSource, DataRequirements], ShardVerdict]
ValidateWithin = Callable[..., ShardVerdict | Paused]


@dataclass(frozen=True, kw_only=True)
class History:
    """The audit trail of versions, runs and blobs, as the steps write it."""

    ledger: HistoryLedger
    clock: Clock

    def record(self, subject: str, action: str, reason: str, **details: Any) -> None:
        """Record an entry of a version, a run or a blob, and log it."""
        logger.info(f"{shown(subject)}: {shown(reason)}", extra={"action": action, "subject": subject})
        self.ledger.add_history_entry(
            HistoryEntry(subject=subject, at=self.clock(), action=action, reason=reason, details=details)
        )


@dataclass(frozen=True, kw_only=True)
class Services:
    """The world, as the steps see it. ``bootstrap`` builds one of the real adapters, tests one of doubles."""

    pipelines: Mapping[str, Pipeline]
    """By dataset."""
    workspace: Workspace
    data_container: str
    """Events of other containers are not ours."""
    ledger: Ledger
    shards: ShardStore
    rejected_copies: RejectedCopies
    documents: DocumentStore
    """Of the state container: manifests."""
    run_outputs: DocumentStore
    """Of the runs container: training reports."""
    requests: RequestQueue
    jobs: JobService
    models: ModelRegistry
    notifiers: Mapping[str, Notifier]
    """By recipient, as the pipelines name them."""
    dead_letter_sources: Sequence[DeadLetterSource] = ()
    """Where the host and Event Grid leave what they gave up."""
    queues: Mapping[str, MessageQueue] = field(default_factory=dict)
    """By name: where a dead letter of a queue is sent again."""
    clock: Clock = utcnow
    validate: Validate = field(default=validate_shard)
    validate_within: ValidateWithin = field(default=validate_shard_within)
    """For shards that may take longer than one execution."""
    read_script: ReadScript = field(default=no_scripts)
    """Returns what a pipeline's own training script holds. Raises ScriptError."""
    slices: Slices = field(default_factory=Slices)
    sweep_grace: timedelta = timedelta(seconds=120)
    claim_lease: timedelta = timedelta(seconds=180)
    """What a submission or a delivery under way is left to whoever claimed it. Longer than the clients take with all
    their repetitions: whoever holds it is dead once it has run out."""
    max_concurrent_runs: int = 10
    """Over all pipelines; each pipeline has at most one active run."""

    @property
    def history(self) -> History:
        """Where steps record what they did and why."""
        return History(ledger=self.ledger, clock=self.clock)
