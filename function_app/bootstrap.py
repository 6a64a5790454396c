"""The composition root: settings and pipelines → adapters → Services. Clients are built when first used.

Every cold start imports this module before the host knows which function it needs, so imports that only the first
invocation needs are made there.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from function_app.domain.errors import PipelineError, ProblemsError, SettingsError
from function_app.domain.events import (
    RUN_CHANGED,
    SHARD_UPLOADED,
    SHARD_UPLOADED_BULK,
    SWEEP_REQUESTED,
    TRAINING_REQUESTED,
)
from shared import mismatch

if TYPE_CHECKING:
    from function_app.adapters.azure_ml import WorkspaceClient
    from function_app.adapters.connections import StorageConnection
    from function_app.adapters.notifiers import TopicNotifier
    from function_app.config.pipelines import Pipeline
    from function_app.config.prices import PlanFacts
    from function_app.config.recipients import Recipient
    from function_app.config.settings import Settings
    from function_app.domain.checks import Probe
    from function_app.domain.outcomes import Links
    from function_app.ports import DeadLetterSource, Notifier
    from function_app.services import Services, TimeBudget
    from function_app.telemetry import TelemetrySink

DATA_CONNECTION = "DataStorage"
QUEUES = (SHARD_UPLOADED, SHARD_UPLOADED_BULK, TRAINING_REQUESTED, RUN_CHANGED, SWEEP_REQUESTED)

PipelineMark = tuple[tuple[str, int, int], ...]

logger = logging.getLogger(__name__)
_Read = TypeVar("_Read")
_lock = threading.Lock()
_built: list[Services] = []
_read: list[PipelineMark] = []
"""The state of the pipeline files when they were last read."""


def services() -> Services:
    """Return the Services of this process, built at the first call. Raises SettingsError, PipelineError.

    A pipeline file that was changed since is read again: where files can be edited, no restart is needed.
    """
    with _lock:
        if not _built:
            mark = _current_mark(os.environ)  # before the files are read: a change in between is noticed
            _built[:], _read[:] = [build_services(os.environ)], [mark]
        elif _read and (mark := _current_mark(os.environ)) != _read[0]:
            _built[:], _read[:] = [_with_pipelines_of(os.environ, _built[0])], [mark]
        return _built[0]


def _current_mark(environ: Mapping[str, str]) -> PipelineMark:
    from function_app.config.pipeline_files import folder_mark
    from function_app.config.settings import pipelines_dir

    return folder_mark(pipelines_dir(environ))


def _with_pipelines_of(environ: Mapping[str, str], built: Services) -> Services:
    """Return Services with the pipelines as the files are now, and with the clients that they have."""
    from function_app.config.settings import read_settings

    found = _pipelines(read_settings(environ), environ)
    return replace(
        built,
        pipelines=found.pipelines,
        out_of_service=found.out_of_service,
        outage_recipients=found.recipients,
        notifiers=found.notifiers,
        plan_facts=found.plan_facts,
    )


_AS_SET = ("sweep_grace", "claim_lease", "max_concurrent_runs", "pages_sign_in", "requests_per_minute")
"""Settings that the Services have under the same names."""


def build_services(environ: Mapping[str, str]) -> Services:
    """Build Services with the real adapters, without any request. Raises SettingsError or PipelineError."""
    from function_app.adapters.azure_ml import AzureMLJobs, AzureMLModels
    from function_app.adapters.blobs import BlobDocumentStore, BlobRejectedCopies, BlobShardStore
    from function_app.adapters.queues import StorageRequestQueue
    from function_app.adapters.tables import TableLedger
    from function_app.notify.outbox import in_threads
    from function_app.runs.submission import handle_request
    from function_app.services import Services

    found = _configuration(environ)
    settings, host, data, workspace = found.settings, found.host, found.data, _workspace_client(found.settings)
    return Services(
        pipelines=found.pipelines.pipelines,
        out_of_service=found.pipelines.out_of_service,
        outage_recipients=found.pipelines.recipients,
        workspace=settings.workspace,
        data_container=settings.data_container,
        ledger=TableLedger(host),
        shards=BlobShardStore(data, settings.data_container),
        rejected_copies=BlobRejectedCopies(data, settings.data_container),
        documents=BlobDocumentStore(host, settings.state_container),
        run_outputs=BlobDocumentStore(host, settings.runs_container),
        requests=StorageRequestQueue(host),
        start=handle_request,
        jobs=AzureMLJobs(workspace),
        models=AzureMLModels(workspace),
        notifiers=found.pipelines.notifiers,
        at_once=in_threads,
        dead_letter_sources=_dead_letter_sources(host),
        queues={queue: StorageRequestQueue(host, queue) for queue in QUEUES},
        **_script_readers(settings),
        time_budget=_time_budget(settings.validation_budget_s),
        plan_facts=found.pipelines.plan_facts,
        **{name: getattr(settings, name) for name in _AS_SET},
        probes=tuple(_probes(found, workspace, environ)),
        in_azure=settings.in_azure,
        telemetry_sink=_telemetry_sink(settings),
    )


def _script_readers(settings: Settings) -> dict[str, Any]:
    """Return readers of a pipeline's own script and of the modules that it may import."""
    from function_app.config.pipeline_files import read_modules, read_script

    folder = settings.pipelines_dir
    return {
        "read_script": functools.partial(read_script, folder),
        "read_modules": functools.partial(read_modules, folder),
    }


def _time_budget(budget_s: int) -> TimeBudget:
    from function_app.config.settings import PATIENCE
    from function_app.services import TimeBudget

    return TimeBudget(budget_s=budget_s, patience_s=budget_s * PATIENCE)


def _probes(found: _Configuration, workspace: WorkspaceClient, environ: Mapping[str, str]) -> Iterator[Probe]:
    from function_app.adapters import probes
    from function_app.adapters.dead_letters import DEAD_LETTER_CONTAINER
    from function_app.adapters.tables import TABLE_PREFIX
    from function_app.ports import utcnow

    settings, host, data = found.settings, found.host, found.data
    copies = sorted({one.quarantine for one in found.pipelines.pipelines.values() if one.quarantine})
    app, group = environ.get("WEBSITE_SITE_NAME", "APP"), settings.workspace.resource_group
    yield from probes.identity_probes((host.settings, data.settings), settings.client_id)
    yield from probes.storage_probes(
        host,
        data,
        read=[(data, settings.data_container), (host, settings.runs_container)],
        written=[
            *((host, name) for name in (settings.state_container, DEAD_LETTER_CONTAINER)),
            *((data, name) for name in copies),
        ],
        queues=QUEUES,
        tables=TABLE_PREFIX,
    )
    yield from probes.asset_probes(workspace)
    restart = f"az functionapp restart --resource-group {group} --name {app}"
    yield probes.clock_probe(host, settings.state_container, utcnow, restart)
    yield probes.topic_probe(_topic_notifier(settings) if settings.topic_endpoint else None)
    yield probes.telemetry_probe(environ, in_azure=settings.in_azure)


def _telemetry_sink(settings: Settings) -> TelemetrySink | None:
    """Return the destination of telemetry. Without a setting for it, nothing is imported."""
    if settings.traces_dir is None and settings.insights_connection is None:
        return None
    from function_app.adapters.telemetry import to_application_insights, to_files

    if settings.traces_dir is not None:
        return to_files(settings.traces_dir)
    from function_app.adapters.log_lines import send_log_lines

    send_log_lines(str(settings.insights_connection))
    return to_application_insights(str(settings.insights_connection))


def _workspace_client(settings: Settings) -> WorkspaceClient:
    from function_app.adapters.azure_ml import WorkspaceClient
    from function_app.adapters.azure_ml_logs import JobLogs

    logs = JobLogs(client_id=settings.client_id, blob_uri=settings.workspace_blob_uri)
    return WorkspaceClient(settings.workspace, settings.client_id, logs=logs)


@dataclass(frozen=True, kw_only=True)
class _Pipelines:
    """The usable pipelines with their notifiers, and the unusable ones."""

    pipelines: Mapping[str, Pipeline]
    out_of_service: Mapping[str, tuple[str, ...]]
    recipients: Mapping[str, tuple[Recipient, ...]]
    """Dataset that is out of service → whom its files notify."""
    notifiers: Mapping[str, Notifier]
    plan_facts: PlanFacts


@dataclass(frozen=True, kw_only=True)
class _Configuration:
    """The content of valid app settings and of the pipeline files."""

    host: StorageConnection
    data: StorageConnection
    settings: Settings
    pipelines: _Pipelines


def _configuration(environ: Mapping[str, str]) -> _Configuration:
    """Read and check everything. Raises SettingsError or PipelineError with all problems that stop the whole app."""
    from function_app.adapters.connections import HOST_CONNECTION, StorageConnection, read_connection
    from function_app.config.settings import check_budget, read_settings

    problems = _Problems()
    host = problems.gather(lambda: read_connection(environ, HOST_CONNECTION))
    data = problems.gather(lambda: read_connection(environ, DATA_CONNECTION, services=("blob",)))
    settings = problems.gather(lambda: read_settings(environ))
    if settings:
        problems.gather(lambda: check_budget(settings.validation_budget_s, environ))
    pipelines = problems.gather(lambda: _pipelines(settings, environ)) if settings else None
    if problems.found or host is None or data is None or settings is None or pipelines is None:
        raise problems.error()
    return _Configuration(
        host=StorageConnection(host), data=StorageConnection(data), settings=settings, pipelines=pipelines
    )


def _pipelines(settings: Settings, environ: Mapping[str, str]) -> _Pipelines:
    """Read the pipeline files. An invalid one, or one that needs a missing setting, stops only its dataset."""
    from function_app.config.pipeline_files import read_pipelines

    folder = read_pipelines(settings.pipelines_dir, settings.cluster_sizes)
    notifiers: dict[str, Notifier] = {}
    found = {
        dataset: tuple(
            f"{folder.files[dataset]}: {problem}" for problem in _deployed(pipeline, settings, environ, notifiers)
        )
        for dataset, pipeline in folder.pipelines.items()
    }
    folder = folder.without(found)
    for dataset, problems in folder.out_of_service.items():
        whose = f"dataset {dataset}" if dataset else "a dataset that its file does not state"
        text = "\n".join(problems)
        logger.error(f"out of service, {whose}:\n{text}", extra={"action": "pipeline_out_of_service"})
    for recipient in (one for several in folder.recipients.values() for one in several):
        with contextlib.suppress(SettingsError):  # its recipients cannot be notified; the problem is in the log
            notifiers.setdefault(recipient.name, _notifier(recipient, settings, environ))
    return _Pipelines(
        pipelines=folder.pipelines,
        out_of_service=folder.out_of_service,
        recipients=folder.recipients,
        notifiers=notifiers,
        plan_facts=folder.plan_facts,
    )


def _dead_letter_sources(host_storage: StorageConnection) -> list[DeadLetterSource]:
    from function_app.adapters.dead_letters import DeadLetterContainer, PoisonQueue

    poisoned = [PoisonQueue(host_storage, queue) for queue in QUEUES]
    return [*poisoned, DeadLetterContainer(host_storage)]


class _Problems:
    """Collects problems of several places, so one start reports all of them."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._kinds: list[type[ProblemsError]] = []

    def gather(self, read: Callable[[], _Read]) -> _Read | None:
        try:
            return read()
        except (SettingsError, PipelineError) as error:
            self.found += error.problems
            self._kinds.append(type(error))
            return None

    def error(self) -> ProblemsError:
        kind = PipelineError if SettingsError not in self._kinds else SettingsError
        return kind(*self.found)


def _deployed(
    pipeline: Pipeline, settings: Settings, environ: Mapping[str, str], notifiers: dict[str, Notifier]
) -> Iterator[str]:
    """Yield problems that prevent using a pipeline with these app settings; add its recipients' notifiers."""
    if problem := mismatch(settings.workspace.code_id):  # its manifests and jobs would not be understood
        yield f"LANDFALL_CODE_ID: {problem}"
    if pipeline.quarantine in settings.own_containers:  # copies of rejected shards would be written among the shards
        yield "quarantine: is one of Landfall's own containers; name another one"
    for recipient in pipeline.notify:
        try:
            notifiers.setdefault(recipient.name, _notifier(recipient, settings, environ))
        except SettingsError as error:
            yield from (f"notify: {problem}" for problem in error.problems)


def _notifier(recipient: Recipient, settings: Settings, environ: Mapping[str, str]) -> Notifier:
    """Return a notifier with a time limit for a recipient. Raises SettingsError if its address is not set."""
    from function_app.adapters.notifiers import BoundedNotifier

    return BoundedNotifier(_unbounded_notifier(recipient, settings, environ))


def _unbounded_notifier(recipient: Recipient, settings: Settings, environ: Mapping[str, str]) -> Notifier:
    from function_app.adapters.notifiers import WebhookNotifier
    from function_app.config.settings import read_apprise_url, read_url

    if recipient.webhook is not None:
        return WebhookNotifier(read_url(environ, recipient.webhook), _links(settings))
    if recipient.apprise is not None:
        from function_app.adapters.apprise import AppriseNotifier

        return AppriseNotifier(read_apprise_url(environ, recipient.apprise), _links(settings))
    return _topic_notifier(settings)


def _links(settings: Settings) -> Links:
    from function_app.domain.outcomes import Links

    return Links(pages=settings.pages_url, workspace_id=settings.workspace.arm_id if settings.in_azure else None)


def _topic_notifier(settings: Settings) -> TopicNotifier:
    from function_app.adapters.notifiers import TopicNotifier

    if settings.topic_endpoint is None:
        raise SettingsError("LANDFALL_NOTIFICATION_TOPIC_ENDPOINT is not set, and a pipeline notifies the topic")
    access = {"key": settings.topic_key, "client_id": settings.client_id}
    return TopicNotifier(settings.topic_endpoint, **access, links=_links(settings))
