"""Azure ML and recipients of notifications in memory, for tests. They pass the adapters' contract tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from function_app.domain.capacity import ROLE_MISSING, Capacity
from function_app.domain.errors import MetricsUnreadableError, SubmissionRefusedError
from function_app.domain.failures import NAME_TAKEN, NOT_PUBLISHED
from function_app.domain.jobs import (
    JobAssets,
    JobSpec,
    JobStatus,
    LogPart,
    ModelRegistration,
    files_asset,
    finite_metrics,
    not_published,
)
from function_app.domain.records import NotificationRecord
from shared.errors import LandfallError

UNKNOWN_COMPUTE = "400/UserError/BadArgument/UnknownTargetType"
RUN_ID_TAG = "landfall.run_id"
_ENDED = frozenset({"Completed", "Failed", "Canceled"})


@dataclass(kw_only=True)
class MemoryJobs:
    """Implements JobService. Tests change a job's status with ``become``; in Azure the service changes it."""

    submitted: dict[str, JobSpec] = field(default_factory=dict)
    """Jobs by name, as first submitted."""
    submissions: list[str] = field(default_factory=list)
    """Names in the order of the calls, including repeated calls."""
    statuses: dict[str, JobStatus] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    """Logs of rank 0 by the job's name, and of rank n by ``name/n``."""
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    """Metrics that jobs logged to their MLflow runs, by the job's name."""
    metrics_refusal: str | None = None
    """If set, reading metrics raises it."""
    refusal: str | None = None
    """If set, every submission raises it."""
    known_assets: JobAssets = field(
        default_factory=lambda: JobAssets(image=f"registry.example/training@sha256:{'1' * 64}", commit="2" * 40)
    )
    """Environment and code of every job."""
    deleted_computes: set[str] = field(default_factory=set)
    """Missing computes; all others exist."""
    capacity_now: Capacity = field(default_factory=lambda: Capacity(refusal=ROLE_MISSING))
    """Clusters and quotas; by default those that an identity with a role only on the workspace can read."""
    capacity_refusal: LandfallError | None = None
    """If set, reading clusters and quotas raises it."""
    unpublished: set[str] = field(default_factory=set)
    """ARM ids of files, environments and code that are not published; all others are."""

    def become(
        self,
        name: str,
        status: str,
        *,
        error: str | None = None,
        error_code: str | None = None,
        ran_s: float | None = None,
    ) -> None:
        """Change a job's status to one of Azure ML's."""
        self.statuses[name] = replace(
            self.statuses[name], status=status, error=error, error_code=error_code, ran_s=ran_s
        )

    def forget(self, name: str) -> None:
        """Delete a job, as the deletion of the workspace does."""
        del self.statuses[name]

    def submit(self, spec: JobSpec) -> JobStatus:
        """See JobService."""
        if self.refusal is not None:
            raise SubmissionRefusedError(self.refusal)
        for asset in (files_asset(spec), spec.environment_id, spec.code_id):
            if asset is not None and asset in self.unpublished:
                raise SubmissionRefusedError(not_published(spec, asset), code=f"404/{NOT_PUBLISHED}")
        self.submissions.append(spec.name)
        if spec.name not in self.submitted and spec.compute in self.deleted_computes:
            raise SubmissionRefusedError(
                f"submit job {spec.name}: the workspace has no cluster {spec.compute}", code=UNKNOWN_COMPUTE
            )
        met = self.submitted.setdefault(spec.name, spec)
        if met != spec:
            raise SubmissionRefusedError(
                f"submit job {spec.name}: another job has this name", code=f"400/{NAME_TAKEN}"
            )
        return self.statuses.setdefault(
            spec.name, JobStatus(name=spec.name, status="NotStarted", tags=dict(spec.tags))
        )

    def status(self, name: str) -> JobStatus | None:
        """See JobService."""
        return self.statuses.get(name)

    def cancel(self, name: str) -> None:
        """See JobService."""
        if name not in self.statuses:
            raise SubmissionRefusedError(f"cancel job {name}: Azure ML does not know it")
        if self.statuses[name].status not in _ENDED:
            self.become(name, "Canceled")

    def ours(self) -> list[JobStatus]:
        """See JobService."""
        return [status for status in self.statuses.values() if RUN_ID_TAG in status.tags]

    def has_compute(self, name: str) -> bool:
        """See JobService."""
        return name not in self.deleted_computes

    def assets(self, spec: JobSpec) -> JobAssets:
        """See JobService."""
        del spec
        return self.known_assets

    def capacity(self) -> Capacity:
        """See JobService."""
        if self.capacity_refusal is not None:
            raise self.capacity_refusal
        return self.capacity_now

    def log_tail(self, name: str, *, max_bytes: int) -> str | None:
        """See JobService."""
        part = self.log_part(name, rank=0, after=None, max_bytes=max_bytes)
        return None if part is None else part.content.decode(errors="replace")

    def log_part(self, name: str, *, rank: int, after: int | None, max_bytes: int) -> LogPart | None:
        """See JobService."""
        log = self.logs.get(f"{name}/{rank}" if rank else name)
        if log is None:
            return None
        content = log.encode(errors="surrogateescape")
        size = len(content)
        start = max(0, size - max_bytes) if after is None else min(after, size)
        return LogPart(content=content[start : start + max_bytes], start=start, size=size)

    def logged_metrics(self, name: str) -> Mapping[str, float]:
        """See JobService."""
        if self.metrics_refusal is not None:
            raise MetricsUnreadableError(self.metrics_refusal)
        return finite_metrics(self.metrics.get(name, {}))


@dataclass(kw_only=True)
class MemoryModels:
    """Implements ModelRegistry."""

    registered: dict[tuple[str, str], ModelRegistration] = field(default_factory=dict)
    """Registrations by name and version."""
    refusal: str | None = None

    def register(self, registration: ModelRegistration) -> None:
        """See ModelRegistry."""
        if self.refusal is not None:
            raise SubmissionRefusedError(self.refusal)
        met = self.registered.setdefault((registration.name, registration.version), registration)
        if met.path != registration.path:
            raise SubmissionRefusedError(
                f"model {registration.name} version {registration.version} is of another run"
            )

    def tag(self, name: str, version: str, tag: str, value: str | None) -> None:
        """See ModelRegistry."""
        found = self.find(name, version)
        if found is None:
            raise SubmissionRefusedError(f"tag model {name} version {version}: the workspace has no such version")
        others = {key: text for key, text in found.tags.items() if key != tag}
        tags = others if value is None else {**others, tag: value}
        self.registered[name, version] = replace(found, tags=tags)

    def find(self, name: str, version: str) -> ModelRegistration | None:
        """See ModelRegistry."""
        return self.registered.get((name, version))


@dataclass(kw_only=True)
class MemoryNotifier:
    """Implements Notifier; delivered notifications are in ``received``."""

    received: list[NotificationRecord] = field(default_factory=list)

    def send(self, notification: NotificationRecord) -> None:
        """See Notifier."""
        self.received.append(notification)
