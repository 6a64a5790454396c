"""What each flow gets: its ports, the pipelines, the clock. A function names the smallest group that it needs."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import PurePath
from typing import Any

from function_app.config.pipeline_files import UNIDENTIFIED, no_modules, no_scripts
from function_app.config.pipelines import Pipeline
from function_app.config.prices import PlanFacts
from function_app.config.recipients import Recipient
from function_app.config.settings import DEFAULT_BUDGET_S, DEFAULT_REQUESTS_PER_MINUTE, PATIENCE, SignIn
from function_app.domain.checks import Probe
from function_app.domain.errors import NotFoundError, PipelineOutOfServiceError
from function_app.domain.events import TrainingRequest
from function_app.domain.jobs import Workspace
from function_app.domain.records import DatasetVersion, HistoryEntry
from function_app.domain.shard_paths import without_pipeline
from function_app.ports import (
    Clock,
    DeadLetterSource,
    DocumentStore,
    HistoryLedger,
    IngestLedger,
    JobService,
    Ledger,
    MessageQueue,
    ModelRegistry,
    Notifier,
    NotifyLedger,
    RejectedCopies,
    RequestQueue,
    RunsLedger,
    ShardStore,
    utcnow,
)
from function_app.telemetry import Telemetry, TelemetrySink
from horovod_lint import ScriptFile
from shard_validation import (
    DataRequirements,
    Paused,
    ShardSource,
    ShardVerdict,
    validate_shard,
    validate_shard_within,
)
from shard_validation.delta_log import TableLog
from shard_validation.file_lists import FileList
from shared.safe_text import mask_secrets, one_line, shown

logger = logging.getLogger(__name__)

MAX_PROBLEMS = 5
"""Problems of a pipeline file that one message lists; the log has all of them."""

ReadScript = Callable[[str], bytes]
ReadModules = Callable[[Sequence[str]], Mapping[PurePath, ScriptFile]]
Validate = Callable[[ShardSource, DataRequirements], ShardVerdict]
ValidateWithin = Callable[..., ShardVerdict | Paused]


@dataclass(frozen=True, kw_only=True)
class History:
    """The audit trail of versions, runs and blobs, as the flows write it."""

    ledger: HistoryLedger
    clock: Clock
    telemetry: Telemetry = field(default_factory=Telemetry)

    def record(self, subject: str, action: str, reason: str, **details: Any) -> None:
        """Record an entry of a version, a run or a blob, and log it.

        A reason quotes names and messages from outside; it is stored as one line without secrets.
        """
        reason = one_line(mask_secrets(reason))
        logger.info(f"{shown(subject)}: {shown(reason)}", extra={"action": action, "subject": shown(subject)})
        now = self.clock()
        self.ledger.add_history_entry(
            HistoryEntry(subject=subject, at=now, action=action, reason=reason, details=details)
        )
        self.telemetry.entry(action, shown(subject), reason, now)


def one_by_one(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """Do things one after the other; return their results."""
    return [work() for work in works]


@dataclass(frozen=True, kw_only=True)
class NotifyServices:
    """What notifications need, and with them every flow."""

    pipelines: Mapping[str, Pipeline]
    """Dataset → pipeline."""
    out_of_service: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Dataset → why its pipeline cannot be used; UNIDENTIFIED for files that do not tell their dataset."""
    outage_recipients: Mapping[str, tuple[Recipient, ...]] = field(default_factory=dict)
    """Dataset that is out of service → whom its files notify, as far as they can be read."""
    ledger: NotifyLedger
    notifiers: Mapping[str, Notifier]
    """Recipient, as the pipelines name it → what delivers to it."""
    failing: set[str] = field(default_factory=set)
    """Recipients that refused their last notification of this process: the others come first."""
    at_once: Callable[[Sequence[Callable[[], Any]]], list[Any]] = one_by_one
    """Does several things, in the app at the same time, so that a recipient that hangs holds up no other."""
    clock: Clock = utcnow
    telemetry_sink: TelemetrySink | None = None
    """Where spans and metrics go; None: nowhere."""
    kept_lists: dict[tuple[str, str], FileList | TableLog] = field(default_factory=dict)
    """Path and ETag → list of a version's files, or log of a table, of those that were read last."""
    claim_lease: timedelta = timedelta(seconds=180)
    """How long one handler may take to submit or to deliver. It exceeds the clients' timeouts with all their retries,
    so an expired lease means that its holder died."""

    def pipeline_of(self, dataset: str) -> Pipeline:
        """Return a dataset's pipeline. Raises PipelineOutOfServiceError, NotFoundError."""
        pipeline = self.pipelines.get(dataset)
        if pipeline is not None:
            return pipeline
        if outage := self.outage(dataset):
            raise PipelineOutOfServiceError(outage)
        raise NotFoundError(without_pipeline(dataset, self.pipelines))

    def outage(self, dataset: str) -> str | None:
        """Return why a dataset's pipeline cannot be used now; None where it can, or where there is none.

        A file that does not tell its dataset may be the pipeline of any dataset that has no other.
        """
        if dataset in self.pipelines:
            return None
        if problems := self.out_of_service.get(dataset):
            return f"the pipeline of dataset {dataset} is out of service: {_listed(problems)}"
        if problems := self.out_of_service.get(UNIDENTIFIED):
            return (
                f"dataset {dataset} has no pipeline, unless it is in a file that cannot be understood: "
                f"{_listed(problems)}"
            )
        return None

    @property
    def history(self) -> History:
        """Where flows record what they did and why."""
        return History(ledger=self.ledger, clock=self.clock, telemetry=self.telemetry)

    @property
    def telemetry(self) -> Telemetry:
        """What writes spans and metrics."""
        return Telemetry(sink=self.telemetry_sink, clock=self.clock)


def _listed(problems: Sequence[str]) -> str:
    more = f"; and {len(problems) - MAX_PROBLEMS} more" if len(problems) > MAX_PROBLEMS else ""
    return "; ".join(problems[:MAX_PROBLEMS]) + more


@dataclass(frozen=True, kw_only=True)
class TimeBudget:
    """Time limits of one execution that validates a shard, by a monotonic clock."""

    budget_s: float = DEFAULT_BUDGET_S
    """After this time an execution leaves the rest of a shard to the next one."""
    patience_s: float = DEFAULT_BUDGET_S * PATIENCE
    """After this time a shard that cannot be paused is rejected: another execution would not get further."""
    checkpoint_every_s: float = 60.0
    """Time between checkpoints: an instance that dies loses at most this work and one chunk."""
    min_bytes: int = 256 << 20
    """Smaller shards take seconds: they are validated in one execution without checkpoints."""
    seconds: Callable[[], float] = time.monotonic

    def is_long(self, size_bytes: int) -> bool:
        """Whether a shard is large enough to be validated in slices."""
        return size_bytes >= self.min_bytes


@dataclass(kw_only=True)
class Turns:
    """When the last shards of each dataset came to this process. Threads count without a lock: more do no harm."""

    max_shards: int = 20
    """Shards of one dataset within the window that are judged in the order of their arrival."""
    window_s: float = 60.0
    short_wait: timedelta = timedelta(seconds=1.5)
    """Where messages wait shorter in the queue of uploads, none is passed on. Storage leaves out fractions of a
    second, so what is passed on has waited for at least half a second."""
    max_taken: int = 32
    """Messages that are taken at once: the most that a queue hands out."""
    max_passed_on: int = 320
    """Messages that one handler passes on; to delete them takes seconds, and meanwhile they are hidden."""
    taken_for: timedelta = timedelta(seconds=30)
    """A message that was taken and neither passed on nor handled is delivered again after this time."""
    small_bytes: int = 1 << 20
    """Shards up to this size, by their events, are handled at the same time where one message has several."""
    small_at_once: int = 4
    together_s: float = 5.0
    """Where the shards of one message take longer, the rest become messages of their own, for any instance."""
    pause_s: float = 0.25
    """Where no message was passed on for so long, the queue of uploads is short."""
    patience_s: float = 2.0
    """Longest wait of a message that was passed on."""
    seconds: Callable[[], float] = time.monotonic
    wait: Callable[[float], object] = time.sleep
    came_s: dict[str, deque[float]] = field(default_factory=dict)
    """Dataset → when its last shards came, at most ``max_shards``."""
    passed_on_s: float = -math.inf
    """When the last message was passed on."""

    def has_had(self, dataset: str, num_shards: int) -> bool:
        """Whether a dataset has had its turn before these shards, which are counted."""
        came_s, now_s = self.came_s.setdefault(dataset, deque(maxlen=self.max_shards)), self.seconds()
        has_had = len(came_s) == self.max_shards and now_s - came_s[0] < self.window_s
        came_s.extend([now_s] * num_shards)
        return has_had

    def give_way(self) -> None:
        """Wait while messages are passed on: that is quick, and another dataset's shard may be behind them."""
        end_s = self.seconds() + self.patience_s
        while (left_s := min(end_s, self.passed_on_s + self.pause_s) - self.seconds()) > 0:
            self.wait(left_s)


@dataclass(frozen=True, kw_only=True)
class IngestServices(NotifyServices):
    """What the way from an upload to a closed version needs."""

    ledger: IngestLedger
    data_container: str
    """Events of other containers are ignored."""
    shards: ShardStore
    rejected_copies: RejectedCopies
    documents: DocumentStore
    """The state container: manifests and checkpoints of long validations."""
    requests: RequestQueue
    start: Callable[[TrainingRequest, Any], None] | None = None
    """Starts a closing's run in the process that closed the version; None: only the queue's function starts runs."""
    start_patience: timedelta = timedelta(seconds=60)
    """After this time the queue's function starts a run that was not started."""
    queues: Mapping[str, MessageQueue] = field(default_factory=dict)
    """Queue's name → queue: for messages that are sent again."""
    validate: Validate = field(default=validate_shard)
    validate_within: ValidateWithin = field(default=validate_shard_within)
    """For shards that may take longer than one execution."""
    time_budget: TimeBudget = field(default_factory=TimeBudget)
    turns: Turns = field(default_factory=Turns)
    claimed_sizes: dict[tuple[DatasetVersion, str], int] | None = None
    """Sizes that splits have claimed, for the shards of one message, which are handled within seconds."""
    sweep_grace: timedelta = timedelta(seconds=120)
    """How long an event may take before the sweep does its work."""


@dataclass(frozen=True, kw_only=True)
class RunServices(NotifyServices):
    """What the way from a request to a registered model needs."""

    ledger: RunsLedger
    workspace: Workspace
    shards: ShardStore
    documents: DocumentStore
    """The state container: manifests."""
    run_outputs: DocumentStore
    """The runs container: training reports."""
    requests: RequestQueue
    jobs: JobService
    models: ModelRegistry
    read_script: ReadScript = field(default=no_scripts)
    """Returns the content of a pipeline's own training script. Raises ScriptError."""
    read_modules: ReadModules = field(default=no_modules)
    """Returns what such a script may import, given the pipeline's files. Raises ScriptError."""
    max_concurrent_runs: int = 10
    """Over all pipelines; each pipeline has at most one active run."""
    plan_facts: PlanFacts = field(default_factory=PlanFacts)
    """Clusters, prices and published figures, for plans."""


@dataclass(frozen=True, kw_only=True)
class Services(IngestServices, RunServices):
    """Everything: ``bootstrap`` builds it from the real adapters, tests from doubles."""

    ledger: Ledger
    dead_letter_sources: Sequence[DeadLetterSource] = ()
    """Where the host and Event Grid leave what they gave up."""
    pages_sign_in: SignIn = SignIn.OFF
    """Who protects the pages."""
    requests_per_minute: int = DEFAULT_REQUESTS_PER_MINUTE
    """What each caller may send to one instance over HTTP."""
    probes: Sequence[Probe] = ()
    """What `landfall doctor` looks at besides these ports."""
    in_azure: bool = False
