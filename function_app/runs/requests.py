"""Requests for runs: on a closed version or on synthetic data, with the options that the pipeline allows."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from function_app.config.pipelines import Limit, Pipeline
from function_app.domain.errors import (
    IdempotencyKeyError,
    OverrideError,
    VersionNameError,
    VersionNotWholeError,
)
from function_app.domain.events import TrainingRequest
from function_app.domain.jobs import digest, planned_run
from function_app.domain.records import DatasetVersion, Generation, RunRecord
from function_app.domain.run_states import AWAITING_SUBMISSION
from function_app.ingest.closing import described
from function_app.ingest.completeness import missing_shards, refusal_messages
from function_app.ports import DocumentStore
from function_app.runs.admission import refuse_held
from function_app.runs.mistakes import (
    MAX_LISTED,
    ScriptCheck,
    check_script,
    refuse_bad_script,
    refuse_misfit,
    with_script_errors,
)
from function_app.runs.submission import unspent_plan
from function_app.services import RunServices
from shared.configuration import suggestion
from shared.job_arguments import OptionsError, TrainingOptions
from shared.manifest import SYNTHETIC, Manifest, fingerprint

MAX_TEXT_CHARS = 200


def asked_version(dataset: str, version: str | None, services: RunServices) -> DatasetVersion:
    """Return the version that a caller asks for; synthetic data need none.

    Raises NotFoundError, PipelineOutOfServiceError, VersionNameError.
    """
    is_synthetic = services.pipeline_of(dataset).data.is_synthetic
    if is_synthetic and version in (None, SYNTHETIC):
        return DatasetVersion(dataset=dataset, version=SYNTHETIC)
    if is_synthetic:
        raise VersionNameError(f"{dataset} is synthetic and has no versions: ask for {dataset} alone, not {version}")
    if version is None:
        raise VersionNameError(
            f"which version of {dataset}? Only synthetic data have none: ask for {dataset}/VERSION"
        )
    return DatasetVersion(dataset=dataset, version=version)


def request_run(
    version: DatasetVersion,
    overrides: Mapping[str, Any],
    *,
    trigger: str,
    services: RunServices,
    forced_by: str | None = None,
    key: str | None = None,
) -> tuple[RunRecord, bool]:
    """Plan and claim a run and put it into the queue; return it, and whether it is new.

    ``forced_by``, the key of a request, trains again whatever was trained before. The same ``key`` means the same
    run, so that a repeated call adds no second one, whatever has happened since.

    Raises NotFoundError, VersionNotWholeError, OverrideError, VersionQuarantinedError, ScriptRefusedError,
    ConfigurationError, IdempotencyKeyError.
    """
    request = _keyed(key, version, overrides, forced_by)
    first = request.first_run(services) if request else None
    if first is not None:
        queue_run(first, services)
        return first, False
    pipeline = services.pipeline_of(version.dataset)
    options = overridden(pipeline, overrides)
    generation = closing_of(pipeline, version, services)
    check = check_script(pipeline, services.read_script, services.read_modules)
    if forced_by is None:
        refuse_held(generation, services.ledger)
        refuse_bad_script(pipeline, check)
    refuse_misfit(pipeline, options, generation, services.documents)
    plan = unspent_plan(pipeline, generation, services, options=options, forced_by=forced_by)
    plan, now = with_script_errors(plan, check), services.clock()
    planned = planned_run(plan, pipeline, generation, trigger=trigger, now=now, forced_by=forced_by)
    first = request.claim(plan.run_id, services) if request else None
    is_new = first is None and services.ledger.add_run(planned)
    run = planned if is_new else first or services.ledger.run(plan.run_id) or planned
    if is_new:
        _record_planned(run, overrides, check, services)
    queue_run(run, services)
    return run, is_new


def _keyed(
    key: str | None, version: DatasetVersion, overrides: Mapping[str, Any], forced_by: str | None
) -> KeyedRequest | None:
    if key is None:
        return None
    content = {"version": str(version), "overrides": dict(overrides), "force": forced_by is not None}
    return KeyedRequest(key=key, content=content)


def queue_run(run: RunRecord, services: RunServices) -> None:
    """Send the run's request, also for an existing run: the handler that claimed it may have died before sending."""
    if run.state in AWAITING_SUBMISSION:
        request = TrainingRequest(
            dataset_version=run.dataset_version, generation=run.generation, trigger=run.trigger, run_id=run.run_id
        )
        services.requests.send(request)


def closing_of(pipeline: Pipeline, version: DatasetVersion, services: RunServices) -> Generation:
    """Return what a request trains on. Raises VersionNotWholeError."""
    if pipeline.data.is_synthetic:
        return synthetic_closing(pipeline, version, services)
    generation = services.ledger.latest_generation(version)
    if generation is None:
        raise _not_whole(pipeline, version, services)
    return generation


def _not_whole(pipeline: Pipeline, version: DatasetVersion, services: RunServices) -> VersionNotWholeError:
    missing = missing_shards(pipeline, version, services)
    refusal = () if missing else refusal_messages(version, services.ledger)
    problem = f"refused as a set for {len(refusal)} reasons" if refusal else f"not whole: {len(missing)} missing"
    return VersionNotWholeError(f"{version} is {problem}", missing=(*missing, *refusal))


def _record_planned(run: RunRecord, overrides: Mapping[str, Any], check: ScriptCheck, services: RunServices) -> None:
    version = run.dataset_version
    services.history.record(
        run.run_id, "run_planned", f"for {version}, trigger {run.trigger}", overrides=dict(overrides)
    )
    if run.forced_by is not None:
        reason = f"run {run.run_id} trains again on purpose: it was forced by request {run.forced_by}"
        services.history.record(run.run_id, "run_forced", reason)
        services.history.record(str(version), "run_forced", reason)
    if check.errors:
        services.history.record(run.run_id, "script_errors_forced", check.summary)
    if check.warnings:
        services.history.record(run.run_id, "script_warnings", "; ".join(check.warnings[:MAX_LISTED]))


def overridden(pipeline: Pipeline, overrides: Mapping[str, Any]) -> TrainingOptions:
    """Return the options to train with. Raises OverrideError naming the field and its limit."""
    options = pipeline.options
    for name, value in overrides.items():
        limit = pipeline.train.overrides.get(name)
        if limit is None:
            offered = ", ".join(sorted(pipeline.train.overrides)) or "none"
            near = suggestion(name[:100], pipeline.train.overrides)
            raise OverrideError(name, f" cannot be overridden; pipeline {pipeline.pipeline} offers {offered}{near}")
        _check_type(name, value, getattr(options, name))
        _check_limit(name, value, limit)
    try:
        return replace(options, **{name: _like(getattr(options, name), value) for name, value in overrides.items()})
    except OptionsError as error:
        raise OverrideError(
            next(iter(overrides), "options"), f": these options do not fit each other: {error}"
        ) from error


def _check_type(name: str, value: Any, own: Any) -> None:
    """Check a value against the type of the pipeline's own value: an int is a float, a bool is no int."""
    accepted = (int, float) if isinstance(own, float) else type(own)
    if isinstance(value, bool) != isinstance(own, bool) or not isinstance(value, accepted):
        raise OverrideError(name, f": expected {type(own).__name__}, got {str(value)[:100]!r}")
    if isinstance(value, str) and len(value) > MAX_TEXT_CHARS:
        raise OverrideError(name, f": expected at most {MAX_TEXT_CHARS} characters, got {len(value)}")
    if isinstance(own, float) and not is_finite(value):
        raise OverrideError(name, f": expected a finite number, got {str(value)[:100]}")


def is_finite(value: float) -> bool:
    """Whether a number is finite as a float, which a whole number of 400 digits is not."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _check_limit(name: str, value: Any, limit: Limit) -> None:
    if limit.allowed and value not in limit.allowed:
        raise OverrideError(name, f": expected one of {list(limit.allowed)}, got {value!r}")
    if limit.minimum is not None and value < limit.minimum:
        raise OverrideError(name, f": expected at least {limit.minimum}, got {value}")
    if limit.maximum is not None and value > limit.maximum:
        raise OverrideError(name, f": expected at most {limit.maximum}, got {value}")


def _like(own: Any, value: Any) -> Any:
    return float(value) if isinstance(own, float) else value


def synthetic_closing(pipeline: Pipeline, version: DatasetVersion, services: RunServices) -> Generation:
    """Return the closing that all runs of a synthetic pipeline train on; the first caller adds it."""
    known = services.ledger.latest_generation(version)
    if known is not None:
        return known
    manifest = Manifest(
        dataset=version.dataset,
        version=version.version,
        generation=1,  # the only one, since synthetic data never change
        fingerprint=fingerprint(()),
        data_format=pipeline.data.format,
        features=(),
        shards=(),
    )
    generation = described(manifest, services.clock())
    services.documents.write_once(generation.manifest_path, manifest.to_json().encode())
    if services.ledger.add_generation(generation):
        reason = "synthetic: the training generates its records, and there are no shards to wait for"
        services.history.record(str(version), "version_closed", reason, manifest=generation.manifest_path)
    return generation


# -- idempotency keys: each belongs to the first request that used it ----------------------------------------
KEYS = "idempotency-keys"
"""Folder of the state container. A rule of the deployment deletes what is in it after 30 days."""
MAX_CLAIM_BYTES = 4096


@dataclass(frozen=True, kw_only=True)
class KeyedRequest:
    """A request with its Idempotency-Key."""

    key: str
    content: Mapping[str, Any]
    """Everything that was asked for; another content under the same key is an error."""

    @property
    def path(self) -> str:
        """Path of the claim in the state container; a digest, because a key may contain dots and colons."""
        return f"{KEYS}/{hashlib.sha256(self.key.encode()).hexdigest()}.json"

    @property
    def answer_path(self) -> str:
        """Path of the answer to this request under this key, for requests that start no run."""
        return f"{self.path.removesuffix('.json')}-{digest(self.content)[:16]}.json"

    def first_run(self, services: RunServices) -> RunRecord | None:
        """Return the run to which this key led, None if there is none (yet). Raises IdempotencyKeyError."""
        claim = self._claimed(services.documents)
        return services.ledger.run(claim["run_id"]) if claim else None

    def claim(self, run_id: str, services: RunServices) -> RunRecord | None:
        """Claim the key for the run that is about to be added; return the run of a caller that was faster.

        A claim without a run is that of a caller that died: then this caller's run is added.
        """
        return None if self._claim(services.documents, run_id=run_id) else self.first_run(services)

    def claim_for_answer(self, documents: DocumentStore) -> bool:
        """Claim the key; return False where this request has claimed it before. Raises IdempotencyKeyError."""
        if self._claim(documents):
            return True
        self._claimed(documents)
        return False

    def _claim(self, documents: DocumentStore, **members: str) -> bool:
        content = {"key": self.key, "request": digest(self.content), **members}
        return documents.write_once(self.path, json.dumps(content).encode())

    def _claimed(self, documents: DocumentStore) -> Mapping[str, str] | None:
        """Return what this request has claimed. Raises IdempotencyKeyError where the key is another one's."""
        found = documents.read(self.path, max_bytes=MAX_CLAIM_BYTES)
        if found is None:
            return None
        claim: Mapping[str, str] = json.loads(found)
        if claim["request"] != digest(self.content):
            led_to = f", which led to run {claim['run_id']}" if "run_id" in claim else ""
            raise IdempotencyKeyError(
                f"Idempotency-Key {self.key} was used for another request{led_to}; use a new key for each request"
            )
        return claim
