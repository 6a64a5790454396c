"""Checks on a whole version that no single shard can show. A refusal lists every reason, not only the first."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from function_app.config.pipelines import Pipeline
from function_app.domain.errors import ServiceUnavailableError
from function_app.domain.records import DatasetVersion, HistoryEntry
from function_app.notify.outbox import add_notifications, deliver
from function_app.ports import HistoryLedger
from function_app.services import IngestServices
from shard_validation import (
    COUNT_FILES,
    MAX_COUNTS_BYTES,
    CountsError,
    Reason,
    ReasonCode,
    SourceError,
    StatedCounts,
    check_set,
    read_counts,
)
from shared.manifest import Manifest

SET_REJECTED = "set_rejected"
MAX_LISTED = 50
"""Reasons kept with a refusal: there may be one for each shard."""


def refuse_set(pipeline: Pipeline, manifest: Manifest, formats: Mapping[str, str], services: IngestServices) -> bool:
    """Check the shards as a set. Where they fail, record why, notify people and return True.

    ``formats`` maps a shard's name to its format, where the ledger knows it.
    """
    version = DatasetVersion(dataset=manifest.dataset, version=manifest.version)
    reasons = _reasons(pipeline, manifest, formats, services)
    if not reasons:
        return False
    messages = [reason.message for reason in reasons[:MAX_LISTED]]
    text = f"whole, but refused as a set for {len(reasons)} reasons: {messages[0]}"
    if messages != _last_messages(version, services):
        services.history.record(str(version), SET_REJECTED, text, fingerprint=manifest.fingerprint, messages=messages)
    add_notifications(
        pipeline,
        subject=str(version),
        outcome=SET_REJECTED,
        occasion=_occasion(manifest, messages),
        content={"text": f"{version} is {text}", "dataset": version.dataset, "version": version.version}
        | {"fingerprint": manifest.fingerprint, "reasons": [reason.to_json() for reason in reasons[:MAX_LISTED]]},
        services=services,
    )
    deliver(str(version), services)
    return True


def _occasion(manifest: Manifest, messages: list[str]) -> str:
    """Identify a refusal by shards and reasons, so that each is sent once: stated counts may change alone."""
    digest = hashlib.sha256("\n".join(messages).encode()).hexdigest()
    return f"{manifest.fingerprint[:12]}-{digest[:8]}"


def last_refusal(version: DatasetVersion, ledger: HistoryLedger) -> HistoryEntry | None:
    """Return the last refusal of a version as a set; None where it was never refused or has closed since."""
    about_set = (
        entry
        for entry in reversed(ledger.history(str(version)))
        if entry.action in {SET_REJECTED, "version_closed", "version_changed"}
    )
    last = next(about_set, None)
    return last if last is not None and last.action == SET_REJECTED else None


def _last_messages(version: DatasetVersion, services: IngestServices) -> list[str] | None:
    refusal = last_refusal(version, services.ledger)
    return None if refusal is None else list(refusal.details.get("messages", ()))


def _reasons(
    pipeline: Pipeline, manifest: Manifest, formats: Mapping[str, str], services: IngestServices
) -> list[Reason]:
    version = DatasetVersion(dataset=manifest.dataset, version=manifest.version)
    requirements, reasons, counts = pipeline.data.requirements(), list[Reason](), None
    try:
        counts = None if requirements.counts == "ignore" else _stated_counts(version, services)
    except CountsError as error:
        reasons.append(Reason(code=ReasonCode.SET_COUNTS_UNREADABLE, shard=COUNT_FILES[0], message=str(error)))
        requirements = replace(requirements, counts="ignore")  # they are not compared with anything
    return reasons + check_set(manifest.shards, requirements, counts=counts, formats=formats)


def _stated_counts(version: DatasetVersion, services: IngestServices) -> StatedCounts | None:
    """Read the record counts that the dataset states. Raises CountsError where they cannot be understood."""
    for name in COUNT_FILES:
        facts = services.shards.facts(f"{version}/{name}")
        if facts is None:
            continue
        try:
            content = services.shards.open(facts).read(0, min(facts.size_bytes, MAX_COUNTS_BYTES + 1))
        except SourceError as error:
            raise ServiceUnavailableError(f"{facts.path} could not be read: {error}") from error
        return read_counts(name, content)
    return None
