"""Jobs and models of Azure ML, through ``azure-ai-ml``."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from function_app.adapters.azure_ml_logs import MAX_CODES, JobLogs, with_end
from function_app.adapters.azure_ml_metrics import read_metrics, tracking_client
from function_app.adapters.azure_ml_pace import Pace
from function_app.adapters.connections import credential
from function_app.domain.capacity import ROLE_MISSING, Capacity, ClusterNow, OfferedFamily, Quota
from function_app.domain.errors import ServiceUnavailableError, SubmissionRefusedError
from function_app.domain.failures import NAME_TAKEN, NOT_PUBLISHED
from function_app.domain.jobs import (
    COMMIT_TAG,
    NO_COMMIT,
    SPEC_HASH_TAG,
    JobAssets,
    JobSpec,
    JobStatus,
    LogPart,
    ModelRegistration,
    Workspace,
    files_asset,
    named_asset,
    not_published,
)
from shared.errors import LandfallError

if TYPE_CHECKING:
    from azure.ai.ml import MLClient
    from azure.core import PipelineClient
    from azure.core.exceptions import HttpResponseError

RUN_ID_TAG = "landfall.run_id"
"""The tag of every job that Landfall submits, by which the service can list jobs."""

OPTIONS: dict[str, Any] = {"retry_total": 3, "connection_timeout": 5, "read_timeout": 30}
"""The SDK's default read time-out, 300 s, is longer than a function's HTTP response may take."""

CAPACITY_S = 30.0
"""How long clusters and quotas are cached, so that a repeated plan sends no requests."""
MAX_DETAIL_CHARS = 2000
_TRY_LATER = frozenset({401, 408, 409, 429})
"""Statuses after which a retry may help. 401: the token has expired, and a retry gets a new one."""
_IMMUTABLE = ("JobPropertyImmutable", "cannot be changed")
"""Azure ML's message if a job with this name exists with other content."""
_UNKNOWN_COMPUTE = ("UnknownTargetType", "Unknown compute target")
"""Azure ML's message if the job's compute does not exist. It does not name the compute."""
_MISSING = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND})
"""Statuses if the environment or code of a job does not exist."""


class WorkspaceClient:
    """One workspace. ``azure.ai.ml`` is imported at the first use, because that costs 0.9 s of CPU and 80 MB."""

    def __init__(
        self,
        workspace: Workspace,
        client_id: str | None,
        *,
        pace: Pace | None = None,
        logs: JobLogs | None = None,
    ) -> None:
        self.workspace = workspace
        self.logs = logs or JobLogs(client_id=client_id)
        self._client_id = client_id
        self._pace = pace or Pace()
        self._client: MLClient | None = None
        self._tracking: PipelineClient[Any, Any] | None = None
        self._lock = threading.Lock()

    def get(self) -> MLClient:
        """Return the SDK's client, built at the first call."""
        with self._lock:
            if self._client is None:
                self._client = self._build()
            return self._client

    def tracking(self) -> PipelineClient[Any, Any]:
        """Return the client of the workspace's MLflow API, built at the first call."""
        client = self.get()
        with self._lock:
            if self._tracking is None:
                self._tracking = tracking_client(client, credential(self._client_id), self._pace.policy())
            return self._tracking

    def forget(self) -> None:
        """Build a new client at the next call, because the credential also caches tokens that were refused."""
        with self._lock:
            self._client = self._tracking = None

    @contextmanager
    def errors(self, action: str) -> Iterator[None]:
        """Translate errors like ``azure_ml_errors``. A refused token is not used again."""
        from azure.core.exceptions import HttpResponseError

        with azure_ml_errors(action):
            try:
                yield
            except HttpResponseError as error:
                if error.status_code == HTTPStatus.UNAUTHORIZED:
                    self.forget()
                raise

    def _build(self) -> MLClient:
        from azure.ai.ml import MLClient

        return MLClient(
            credential(self._client_id),
            self.workspace.subscription_id,
            self.workspace.resource_group,
            self.workspace.name,
            show_progress=False,
            custom_hook_policy=self._pace.policy(),
            **OPTIONS,
        )


class AzureMLJobs:
    """Implements JobService."""

    def __init__(self, client: WorkspaceClient) -> None:
        self._client = client
        self._capacity: tuple[float, Capacity | LandfallError] | None = None

    def submit(self, spec: JobSpec) -> JobStatus:
        """See JobService. One PUT, one GET if the name is taken, and one GET before it if the job has files.

        Two more requests find missing assets if the job is refused for another reason.
        """
        from azure.core.exceptions import HttpResponseError

        with self._client.errors(f"submit job {spec.name}"):
            if files := files_asset(spec):  # With a missing asset the job would fail only on its nodes.
                self._refuse_unpublished(spec, files)
            jobs = self._client.get().jobs
            try:
                return _status(jobs.create_or_update(_command_job(spec), skip_validation=True))
            except HttpResponseError as error:
                if _says(error, _UNKNOWN_COMPUTE):
                    raise self._unknown_compute(spec, error) from error
                if not _says(error, _IMMUTABLE):
                    if error.status_code in _MISSING:
                        self._refuse_unpublished(spec, spec.environment_id)
                        self._refuse_unpublished(spec, spec.code_id)
                    raise
        return self._met(spec)

    def _refuse_unpublished(self, spec: JobSpec, asset_id: str) -> None:
        """Raise SubmissionRefusedError if the workspace does not have an asset of a job."""
        from azure.core.exceptions import ResourceNotFoundError

        client, (kind, name, version) = self._client.get(), named_asset(asset_id)
        try:
            if kind == "data":
                client.data.get(name, version)
            elif kind == "environments":
                client.environments.get(name, version)
            else:
                client._code.get(name, version)  # noqa: SLF001 (a contract test covers the call)
        except ResourceNotFoundError as error:
            raise SubmissionRefusedError(not_published(spec, asset_id), code=f"404/{NOT_PUBLISHED}") from error

    def _unknown_compute(self, spec: JobSpec, error: HttpResponseError) -> SubmissionRefusedError:
        return SubmissionRefusedError(
            f"submit job {spec.name}: workspace {self._client.workspace.name} has no cluster {spec.compute}. Create "
            f"it with landfall publish, or name another one in the pipeline's file. Azure ML says: {detail(error)}",
            code=_refusal_code(error),
        )

    def status(self, name: str) -> JobStatus | None:
        """See JobService. One GET, and another one for the end of a failed or canceled job."""
        from azure.core.exceptions import ResourceNotFoundError

        with self._client.errors(f"look at job {name}"):
            client = self._client.get()
            try:
                status = _status(client.jobs.get(name))
            except ResourceNotFoundError:
                return None
            return with_end(client, status) if status.status in ("Failed", "Canceled") else status

    def cancel(self, name: str) -> None:
        """See JobService. Does not wait for the job to end."""
        from azure.core.exceptions import ResourceNotFoundError

        with self._client.errors(f"cancel job {name}"):
            try:
                self._client.get().jobs.begin_cancel(name, polling=False)
            except ResourceNotFoundError as error:
                raise SubmissionRefusedError(f"cancel job {name}: Azure ML does not know it") from error

    def ours(self) -> list[JobStatus]:
        """See JobService. One GET: the first page, which has the newest jobs."""
        with self._client.errors("list the jobs of the workspace"):
            pages = self._client.get().jobs.list(tag=RUN_ID_TAG).by_page()
            return [_status(job) for job in next(pages, ())]

    def has_compute(self, name: str) -> bool:
        """See JobService. One GET."""
        from azure.core.exceptions import ResourceNotFoundError

        with self._client.errors(f"look at compute {name}"):
            try:
                self._client.get().compute.get(name)
            except ResourceNotFoundError:
                return False
        return True

    def assets(self, spec: JobSpec) -> JobAssets:
        """See JobService. Two GETs; assets that no longer exist are unknown."""
        from azure.core.exceptions import ResourceNotFoundError

        image: str | None = None
        commit: str | None = None
        why: str | None = "the workspace does not have the code asset any more"
        with self._client.errors(f"look at environment and code of job {spec.name}"):
            client = self._client.get()
            with contextlib.suppress(ResourceNotFoundError):
                _, name, version = named_asset(spec.environment_id)
                image = client.environments.get(name, version).image
            with contextlib.suppress(ResourceNotFoundError):
                _, name, version = named_asset(spec.code_id)
                code = client._code.get(name, version)  # noqa: SLF001 (a contract test covers the call)
                commit = (code.tags or {}).get(COMMIT_TAG)
                why = None if commit else NO_COMMIT
        return JobAssets(image=image, commit=commit, why_no_commit=why)

    def capacity(self) -> Capacity:
        """See JobService. One GET, and four if the identity may read quotas.

        Results and errors are cached for CAPACITY_S. Concurrent calls are harmless.
        """
        if self._capacity is None or time.monotonic() - self._capacity[0] > CAPACITY_S:
            try:
                found: Capacity | LandfallError = self._read_capacity()
            except LandfallError as error:
                found = error
            self._capacity = time.monotonic(), found
        known = self._capacity[1]
        if isinstance(known, LandfallError):
            raise known
        return known

    def _read_capacity(self) -> Capacity:
        from azure.core.exceptions import HttpResponseError

        with self._client.errors("list the clusters of the workspace"):
            client = self._client.get()
            clusters = dict(_clusters(client, self._client.workspace))
        with self._client.errors("read the quotas of the region"):
            try:
                quotas = tuple(_quota(usage) for usage in client.compute.list_usage())
                families = dict(map(_family, client.compute.list_sizes()))
            except HttpResponseError as error:
                if error.status_code != HTTPStatus.FORBIDDEN:
                    raise
                return Capacity(clusters=clusters, refusal=ROLE_MISSING)
        return Capacity(clusters=clusters, quotas=quotas, families=families)

    def log_tail(self, name: str, *, max_bytes: int) -> str | None:
        """See JobService."""
        with self._client.errors(f"read the log of job {name}"):
            return self._client.logs.tail(self._client.get(), name, max_bytes=max_bytes)

    def log_part(self, name: str, *, rank: int, after: int | None, max_bytes: int) -> LogPart | None:
        """See JobService. One GET, and two of storage."""
        from azure.core.exceptions import ResourceNotFoundError

        with self._client.errors(f"read the log of job {name}"):
            try:
                return self._client.logs.part(self._client.get(), name, rank=rank, after=after, max_bytes=max_bytes)
            except ResourceNotFoundError:  # The run history does not have the job, or not yet.
                return None

    def logged_metrics(self, name: str) -> Mapping[str, float]:
        """See JobService. One GET."""
        with self._client.errors(f"read the MLflow run of job {name}"):
            return read_metrics(self._client.tracking(), self._client.workspace, name)

    def _met(self, spec: JobSpec) -> JobStatus:
        """Return the existing job with this name. Raises SubmissionRefusedError if it is not the same job."""
        met = self.status(spec.name)
        if met is not None and met.tags.get(SPEC_HASH_TAG) == spec.tags.get(SPEC_HASH_TAG):
            return met
        seen = met.tags.get(SPEC_HASH_TAG) if met else "none"
        raise SubmissionRefusedError(
            f"submit job {spec.name}: another job has this name: its spec hash is {seen}, "
            f"this job's is {spec.tags.get(SPEC_HASH_TAG)}",
            code=f"400/{NAME_TAKEN}",
        )


class AzureMLModels:
    """Implements ModelRegistry."""

    def __init__(self, client: WorkspaceClient) -> None:
        self._client = client

    def register(self, registration: ModelRegistration) -> None:
        """See ModelRegistry. One GET, and one PUT after the SDK's own GET of the model's versions.

        A PUT would replace the tags of an existing version, which may have become the current one.
        """
        from azure.ai.ml.entities import Model

        met = self.find(registration.name, registration.version)
        if met is not None and met.path == registration.path:
            return
        model = Model(
            name=registration.name,
            version=registration.version,
            path=registration.path,
            type="custom_model",
            description=registration.description,
            tags={**registration.tags, **(met.tags if met else {})},
        )
        with self._client.errors(f"register model {registration.name} version {registration.version}"):
            self._client.get().models.create_or_update(model)

    def tag(self, name: str, version: str, tag: str, value: str | None) -> None:
        """See ModelRegistry. One GET, and one PUT if that changes something."""
        from azure.core.exceptions import ResourceNotFoundError

        with self._client.errors(f"tag model {name} version {version}"):
            models = self._client.get().models
            try:
                model = models.get(name, version)
            except ResourceNotFoundError as error:
                raise SubmissionRefusedError(
                    f"tag model {name} version {version}: the workspace has no such version"
                ) from error
            others = {key: text for key, text in (model.tags or {}).items() if key != tag}
            tags = others if value is None else {**others, tag: value}
            if tags != model.tags:
                model.tags = tags
                models.create_or_update(model)

    def find(self, name: str, version: str) -> ModelRegistration | None:
        """See ModelRegistry. One GET."""
        from azure.core.exceptions import ResourceNotFoundError

        with self._client.errors(f"look at model {name} version {version}"):
            try:
                model = self._client.get().models.get(name, version)
            except ResourceNotFoundError:
                return None
        return ModelRegistration(
            name=name,
            version=version,
            path=str(model.path),
            description=model.description or "",
            tags=dict(model.tags or {}),
        )


def _clusters(client: MLClient, workspace: Workspace) -> Iterator[tuple[str, ClusterNow]]:
    """Yield the clusters with their nodes, which the SDK's own list omits. A contract test covers the call."""
    found: Any = client.compute._operation.list(workspace.resource_group, workspace.name)  # noqa: SLF001
    for resource in found:
        own: Any = getattr(resource.properties, "properties", None)
        scale: Any = getattr(own, "scale_settings", None)
        if scale is not None:  # Compute instances have none; every cluster has them.
            now = ClusterNow(num_nodes=int(own.current_node_count or 0), max_nodes=int(scale.max_node_count or 0))
            yield str(resource.name), now


def _quota(usage: Any) -> Quota:
    return Quota(name=str(usage.name["value"]), used=int(usage.current_value or 0), limit=int(usage.limit or 0))


def _family(size: Any) -> tuple[str, OfferedFamily]:
    """Return a VM size's name and family. azure-ai-ml 1.35 names the members as the REST API does."""
    vcpus = getattr(size, "v_cp_us", None) or getattr(size, "vCPUs", None)
    return str(size.name).lower(), OfferedFamily(name=str(size.family or size.name), vcpus=int(vcpus or 0))


def _command_job(spec: JobSpec) -> Any:
    from azure.ai.ml import Input, Output, command

    return command(
        name=spec.name,
        display_name=spec.display_name,
        experiment_name=spec.experiment,
        command=spec.command,
        environment=spec.environment_id,
        code=spec.code_id,
        compute=spec.compute,
        instance_count=spec.num_nodes,
        distribution=_distribution(spec),
        shm_size=spec.shm_size,
        timeout=spec.timeout_s,
        inputs={n: Input(type=i["type"], path=i["uri"], mode="ro_mount") for n, i in spec.inputs.items()},
        outputs={n: Output(type=o["type"], path=o["uri"], mode="rw_mount") for n, o in spec.outputs.items()},
        environment_variables=dict(spec.environment_variables),
        tags=dict(spec.tags),
    )


def _distribution(spec: JobSpec) -> Any:
    from azure.ai.ml import MpiDistribution, PyTorchDistribution, TensorFlowDistribution

    if spec.distribution == "tensorflow":  # One worker per node: the service has no number per instance.
        return TensorFlowDistribution(worker_count=spec.num_nodes, parameter_server_count=0)
    kind = PyTorchDistribution if spec.distribution == "pytorch" else MpiDistribution
    return kind(process_count_per_instance=spec.processes_per_node)


def _status(job: Any) -> JobStatus:
    word = getattr(job.status, "value", job.status)  # an enumeration in some responses, a string in others
    return JobStatus(
        name=str(job.name), status=str(word), tags=dict(job.tags or {}), studio_url=job.studio_url or None
    )


def _says(error: HttpResponseError, marks: tuple[str, ...]) -> bool:
    return error.status_code == HTTPStatus.BAD_REQUEST and any(mark in str(error) for mark in marks)


_CODE = re.compile(r'"code": "(\w+)"')
"""Inner codes in the additional information of a response, as the SDK's error prints it."""


@contextmanager
def azure_ml_errors(action: str) -> Iterator[None]:
    """Raise SDK errors as ServiceUnavailableError or SubmissionRefusedError; ``action`` describes the operation."""
    from azure.ai.ml.exceptions import MlException
    from azure.core.exceptions import AzureError, HttpResponseError

    try:
        yield
    except HttpResponseError as error:
        raise _refused_or_unavailable(action, error) from error
    except ServiceUnavailableError as error:  # raised by Pace
        raise ServiceUnavailableError(f"{action}: {error}") from error
    except MlException as error:
        # Raised by the client before sending, for content that the service would refuse.
        raise SubmissionRefusedError(f"{action}: {detail(error)}") from error
    except AzureError as error:
        raise ServiceUnavailableError(f"{action}: Azure ML did not answer: {detail(error)}") from error


def detail(error: Exception) -> str:
    """Return an error's codes and message on one bounded line, without the JSON that the SDK prints after them."""
    message = getattr(getattr(error, "error", None), "message", None)
    text = f"{'/'.join(_refusal_codes(error))}: {message}" if message else str(error)
    return " ".join(text.split())[:MAX_DETAIL_CHARS] or type(error).__name__


def _refused_or_unavailable(action: str, error: HttpResponseError) -> LandfallError:
    status = error.status_code or 0
    if status < HTTPStatus.BAD_REQUEST and status:  # The effect is unknown; a retry finds the job.
        return ServiceUnavailableError(f"{action}: Azure ML's answer ({status}) cannot be read: {detail(error)}")
    if status in _TRY_LATER or status >= HTTPStatus.INTERNAL_SERVER_ERROR or not status:
        # Without a status, no token could be obtained for the identity.
        return ServiceUnavailableError(f"{action}: Azure ML is unavailable ({status}): {detail(error)}")
    hint = "; check the identity's role on the workspace" if status == HTTPStatus.FORBIDDEN else ""
    message = f"{action}: Azure ML refused it ({status}): {detail(error)}{hint}"
    return SubmissionRefusedError(message, code=_refusal_code(error))


def _refusal_code(error: HttpResponseError) -> str:
    """Return the status and the codes of a refusal: ``400/UserError/BadArgument/UnknownTargetType``."""
    return "/".join([str(error.status_code), *_refusal_codes(error)])


def _refusal_codes(error: Any) -> list[str]:
    codes = [str(getattr(error.error, "code", None) or ""), *_CODE.findall(str(error))[:MAX_CODES]]
    return [code[:100] for code in codes if code]
