"""Writes the passport of a model version when it is registered, and finds it again.

It is stored beside the model, under a name with its digest, before the model is registered with that digest as a tag.
So a handler that dies in between, or two of them, leave at worst a document that no model names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from function_app.config.registration import Register
from function_app.domain.errors import DocumentTooLargeError, NotFoundError, SubmissionRefusedError
from function_app.domain.jobs import JobAssets, ModelRegistration, model_folder, report_path, spec_from_json
from function_app.domain.passports import (
    DIGEST,
    FORMAT_VERSION,
    MAX_LISTED_BYTES,
    MAX_LISTED_SHARDS,
    MAX_PASSPORT_BYTES,
    PASSPORT_TAG,
    Passport,
    PassportError,
    read_passport,
    signed,
    to_text,
)
from function_app.domain.records import Generation, RunRecord, manifest_path
from function_app.ports import DocumentStore, JobService
from function_app.registry.examples import examples_path
from function_app.services import RunServices
from shared.manifest import MAX_MANIFEST_BYTES, Manifest, ManifestError
from shared.training_report import MAX_EXAMPLES_BYTES, MAX_REPORT_BYTES, TrainingReport

MAX_MODEL_FILES = 1000
MAX_FILE_CHARS = 1024
MAX_METRICS = 1000
MAX_WHY_CHARS = 500
_SHA256_CHARS = 64


def with_passport(
    registration: ModelRegistration,
    run: RunRecord,
    report: TrainingReport,
    decision: Mapping[str, Any],
    services: RunServices,
) -> ModelRegistration:
    """Write the passport of a model that is about to be registered; return the registration with its digest as a tag.

    ``decision``: JSON-ready, with the members ``require`` (conditions), ``outcome`` and what else it was based on.
    """
    passport = signed(_passport(registration, run, report, decision, services))
    services.run_outputs.write_once(passport_path(run, passport[DIGEST]), to_text(passport).encode())
    return replace(registration, tags={**registration.tags, PASSPORT_TAG: passport[DIGEST]})


def decision_members(
    register: Register, evidence: Mapping[str, Any], why_not: str | None, superseded: str | None
) -> dict[str, Any]:
    """Return what the gate decided, and on what, for a passport."""
    return {
        "by": "the gate",
        "outcome": "registered",
        "promote": why_not is None,
        "not_promoted_because": why_not,
        "superseded": superseded,
        "require": [one.model_dump(mode="json", exclude_none=True) for one in register.require],
        "compare": None if register.compare is None else register.compare.model_dump(mode="json"),
        "comparison": evidence.get("comparison"),
        "intervals": evidence.get("intervals") or {},
    }


def override_members(evidence: Mapping[str, Any], *, by: str, why: str, gate: str | None) -> dict[str, Any]:
    """Return the decision of a person who registers what the gate did not, for a passport."""
    return {
        "by": by,
        "outcome": "registered",
        "promote": False,
        "not_promoted_because": "a person registered it",
        "superseded": None,
        "require": [],
        "compare": None,
        "comparison": evidence.get("comparison"),
        "intervals": evidence.get("intervals") or {},
        "override": {"why": why, "gate": gate},
    }


def passport_path(run: RunRecord, digest: str) -> str:
    """Return the path of a passport in the runs container: beside the folders of the run's model and report."""
    folder = report_path(spec_from_json(run.spec)).rpartition("/")[0].rpartition("/")[0]
    return f"{folder}/passport/{digest[:16]}.json"


def model_file_path(run: RunRecord, name: str) -> str:
    """Return the path of a file of a run's model in the runs container."""
    return f"{model_folder(spec_from_json(run.spec))}/{name}"


def find_passport(model: str, version: str, services: RunServices) -> tuple[Passport, ModelRegistration]:
    """Return a model version's passport as it is stored, which may have been changed, and what the registry has.

    Raises NotFoundError if there is none, PassportError where what is stored cannot be read.
    """
    registration = services.models.find(model, version)
    if registration is None:
        raise NotFoundError(f"model {model} has no version {version}")
    tag, run_id = registration.tags.get(PASSPORT_TAG), registration.tags.get("landfall.run_id", "")
    if tag is None:
        raise NotFoundError(
            f"version {version} of model {model} has no passport: it was registered by an earlier release, or not "
            "by Landfall"
        )
    run = services.ledger.run(run_id) if run_id else None
    if run is None:
        raise NotFoundError(f"the passport of {model}:{version} is not found: run {run_id} is not on record")
    path = passport_path(run, tag)
    content = services.run_outputs.read(path, max_bytes=MAX_PASSPORT_BYTES)
    if content is None:
        raise NotFoundError(f"the passport of {model}:{version} is not in the runs container: there is no {path}")
    try:
        return read_passport(content), registration
    except PassportError as error:
        raise PassportError(f"{path}: {error}") from error


def sha256_of(path: str, documents: DocumentStore, *, max_bytes: int) -> str | None:
    """Return the SHA-256 of a document, None if there is none. Raises DocumentTooLargeError."""
    content = documents.read(path, max_bytes=max_bytes)
    return None if content is None else hashlib.sha256(content).hexdigest()


def _passport(
    registration: ModelRegistration,
    run: RunRecord,
    report: TrainingReport,
    decision: Mapping[str, Any],
    services: RunServices,
) -> dict[str, Any]:
    spec = run.spec
    return {
        "format_version": FORMAT_VERSION,
        "model": {
            "name": registration.name,
            "version": registration.version,
            "path": registration.path,
            "files": _model_files(report),
        },
        "data": _data(run, services),
        "job": {"spec": dict(spec), "spec_hash": run.spec_hash},
        **_code_and_environment(run, services.jobs),
        "run": {
            **_attempt(run),
            "logical_run": run.logical_run,
            "pipeline": run.pipeline,
            "trigger": run.trigger,
            "num_nodes": run.num_nodes,
            "world_size": run.world_size,
            "attempts": [_attempt(one) for one in _earlier(run, services)] + [_attempt(run)],
        },
        "evidence": _evidence_files(run, services.run_outputs),
        "metrics": dict(sorted(report.metrics.items())[:MAX_METRICS]),
        "decision": dict(decision),
    }


def _code_and_environment(run: RunRecord, jobs: JobService) -> dict[str, Any]:
    spec = run.spec
    try:
        assets = jobs.assets(spec_from_json(spec))
    except SubmissionRefusedError as error:  # a role that may not read assets keeps no model from being registered
        assets = JobAssets(why_no_commit=str(error)[:MAX_WHY_CHARS])
    code_version = str(spec["code_id"]).rpartition("/versions/")[2]
    return {
        "code": {
            "id": spec["code_id"],
            "digest": code_version.rpartition("-")[2],
            "commit": assets.commit,
            "why_no_commit": assets.why_no_commit,
        },
        "environment": {
            "id": spec["environment_id"],
            "image": assets.image,
            "image_digest": assets.image.partition("@")[2] or None if assets.image else None,
        },
    }


def _data(run: RunRecord, services: RunServices) -> dict[str, Any]:
    path = manifest_path(run.dataset_version, run.generation, run.fingerprint)
    closing = next((c for c in services.ledger.generations(run.dataset_version) if c.number == run.generation), None)
    content, manifest = _manifest(path, services.documents)
    rows = {(row.name, row.crc32c): row for row in services.ledger.shards(run.dataset_version)}
    shards = []
    for shard in manifest.shards if manifest else ():
        row = rows.get((shard.name, shard.crc32c))
        judged_at = _time(row.validated_at) if row else None
        shards.append({**vars(shard), "etag": row.etag if row else None, "judged_at": judged_at})
    times = sorted(one["judged_at"] for one in shards if one["judged_at"])
    is_listed = len(shards) <= MAX_LISTED_SHARDS and len(json.dumps(shards)) <= MAX_LISTED_BYTES
    return {
        "dataset": run.dataset_version.dataset,
        "version": run.dataset_version.version,
        "generation": run.generation,
        "fingerprint": run.fingerprint,
        "manifest": {"path": path, "sha256": hashlib.sha256(content).hexdigest() if content else None},
        "num_shards": len(shards),
        "num_records": sum(shard.num_records for shard in manifest.shards) if manifest else 0,
        "shards": shards if is_listed else None,
        "events": {
            "first_shard_judged_at": times[0] if times else None,
            "last_shard_judged_at": times[-1] if times else None,
            **_closing(closing),
        },
    }


def _manifest(path: str, documents: DocumentStore) -> tuple[bytes | None, Manifest | None]:
    try:
        content = documents.read(path, max_bytes=MAX_MANIFEST_BYTES)
        return content, Manifest.from_json(content or b"")
    except (DocumentTooLargeError, ManifestError):
        return None, None  # damaged since the training read it; the passport then has no digest of the manifest


def _closing(closing: Generation | None) -> dict[str, Any]:
    if closing is None:
        return {"closed_at": None}
    return {"closed_at": _time(closing.closed_at), "guess": closing.guess, "table_version": closing.table_version}


def _earlier(run: RunRecord, services: RunServices) -> list[RunRecord]:
    found = [services.ledger.run(f"{run.logical_run}-a{number}") for number in range(1, run.attempt)]
    return [one for one in found if one is not None]


def _attempt(run: RunRecord) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "attempt": run.attempt,
        "compute": run.spec.get("compute"),
        "created_at": _time(run.created_at),
        "submitted_at": _time(run.submitted_at),
        "started_at": _time(run.started_at),
        "ended_at": _time(run.ended_at),
        "failure_class": run.failure_class,
        "remedy": run.remedy,
    }


def _time(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="microseconds")


def _evidence_files(run: RunRecord, outputs: DocumentStore) -> dict[str, dict[str, str]]:
    """Return path and SHA-256 of what the decision was based on; what the run did not leave is left out."""
    found = {}
    for name, path, most in (
        ("report", report_path(spec_from_json(run.spec)), MAX_REPORT_BYTES),
        ("example_results", examples_path(run), MAX_EXAMPLES_BYTES),
    ):
        try:
            digest = sha256_of(path, outputs, max_bytes=most)
        except DocumentTooLargeError:
            continue
        if digest is not None:
            found[name] = {"path": path, "sha256": digest}
    return found


def _model_files(report: TrainingReport) -> dict[str, str] | None:
    """Return the SHA-256 of each file of the model, as computed by the training; None if it did not state them."""
    stated = report.details.get("model_files") if isinstance(report.details, Mapping) else None
    return dict(stated) if isinstance(stated, Mapping) and is_listing(stated) else None


def is_listing(files: Mapping[object, object]) -> bool:
    """Whether these are SHA-256 by paths below a folder: a user's script may state anything."""
    return 0 < len(files) <= MAX_MODEL_FILES and all(
        isinstance(name, str)
        and 0 < len(name) <= MAX_FILE_CHARS
        and not {"", ".", ".."}.intersection(name.split("/"))
        and isinstance(digest, str)
        and len(digest) == _SHA256_CHARS
        for name, digest in files.items()
    )
