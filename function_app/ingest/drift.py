"""Drift: compare a closing's data with the data of the current model, once for each closing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from function_app.config.pipelines import Pipeline
from function_app.domain.model_versions import CurrentModel, current_mark
from function_app.domain.records import Generation, RunRecord
from function_app.domain.run_states import RunState
from function_app.ingest.stored_shards import read_manifest
from function_app.notify.outbox import add_notifications, deliver
from function_app.services import IngestServices, RunServices
from shard_validation import Drift, VersionStatistics, measure_drift
from shared.manifest import ManifestError

_Services = IngestServices | RunServices
MAX_RUNS = 1000
"""Runs of a dataset that are searched for the current model."""
MAX_LISTED = 50
BLOCKED, WARNED, MEASURED = "drift_blocked", "drift_warned", "drift_measured"
"""Possible decisions; the first two are also outcomes of notifications."""


@dataclass(frozen=True, kw_only=True)
class _Comparison:
    """A closing, the run of the current model, and the differences of their data."""

    generation: Generation
    trained: RunRecord
    drift: Drift

    @property
    def decision(self) -> str:
        """The decision that the comparison leads to."""
        if self.drift.blocks:
            return BLOCKED
        return WARNED if self.drift.reasons else MEASURED

    @property
    def text(self) -> str:
        """One sentence for people, with every figure that exceeds its threshold."""
        version, trained = self.generation.dataset_version, self.trained
        model = f"{trained.dataset_version}, which the current model was trained on ({trained.run_id})"
        if self.decision == MEASURED:
            num_figures = len(self.drift.measures)
            return f"{version} was compared with {model}: none of {num_figures} figures exceeds its threshold"
        figures = "; ".join(reason.message for reason in self.drift.reasons[:MAX_LISTED])
        so = (
            f", so no run was started; to train on it anyway: landfall submit {version}"
            if self.decision == BLOCKED
            else ""
        )
        return f"{version} differs from {model}{so}: {figures}"

    @property
    def measures(self) -> list[dict[str, Any]]:
        """Every figure with its threshold."""
        return [
            {"code": str(m.code), "split": m.split, "value": m.value, "threshold": m.threshold, "exceeds": m.exceeds}
            for m in self.drift.measures[:MAX_LISTED]
        ]


def is_blocked_by_drift(pipeline: Pipeline, generation: Generation, services: _Services) -> bool:
    """Whether a closing must not start a run by itself; people may still request one.

    The first finding stays even if another model is registered later, so people get one message for each closing. If
    a pipeline no longer blocks, the closings that it had blocked are trained on.
    """
    action = pipeline.data.drift.action
    if action == "ignore":
        return False
    findings = _findings(generation, services)
    if findings is None:
        findings = _measure(pipeline, generation, services)
        services.ledger.set_mark(_mark(generation), json.dumps(findings))
    return action == "block" and findings["decision"] == BLOCKED


@dataclass(frozen=True, kw_only=True)
class DriftFindings:
    """The drift of a closing; empty if there was no model to compare with."""

    trained_on: str | None = None
    """The dataset version that the current model of that time was trained on."""
    messages: tuple[str, ...] = ()
    """Messages for the figures that exceed their thresholds."""
    measures: tuple[Mapping[str, Any], ...] = ()
    """All figures: code, split, value, threshold, exceeds."""


def drift_findings(generation: Generation, services: _Services) -> DriftFindings:
    """Return the recorded drift of a closing."""
    findings = _findings(generation, services) or {}
    return DriftFindings(
        trained_on=findings.get("trained_on"),
        messages=tuple(findings.get("messages", ())),
        measures=tuple(findings.get("measures", ())),
    )


def _findings(generation: Generation, services: _Services) -> dict[str, Any] | None:
    text = services.ledger.mark(_mark(generation))
    if text is None:
        return None
    findings: dict[str, Any] = json.loads(text)
    return findings


def _mark(generation: Generation) -> str:
    return f"drift/{generation.dataset_version}/g{generation.number}"


def _measure(pipeline: Pipeline, generation: Generation, services: _Services) -> dict[str, Any]:
    run = _trained_on(pipeline, services)
    reference = None if run is None else _statistics(_closing_of(run, services), services)
    current = None if reference is None else _statistics(generation, services)
    if run is None or reference is None or current is None:
        return {"decision": None, "messages": []}  # there is no earlier model to compare with
    drift = measure_drift(current, reference, pipeline.data.requirements())
    comparison = _Comparison(generation=generation, trained=run, drift=drift)
    if comparison.decision != MEASURED:
        _notify(comparison, pipeline, services)
    _record(comparison, services)
    return {
        "decision": comparison.decision,
        "messages": [r.message for r in drift.reasons[:MAX_LISTED]],
        "measures": comparison.measures,
        "trained_on": str(run.dataset_version),
    }


def _trained_on(pipeline: Pipeline, services: _Services) -> RunRecord | None:
    """Return the run of the current model, or the newest run with a registered model where none was promoted."""
    runs = services.ledger.runs(limit=MAX_RUNS, dataset=pipeline.dataset)
    registered = (r for r in runs if r.pipeline == pipeline.pipeline and r.state is RunState.REGISTERED)
    newest = next(registered, None)
    if newest is None or pipeline.register_ is None:
        return newest
    current = services.ledger.mark(current_mark(pipeline.register_.model))
    return newest if current is None else services.ledger.run(CurrentModel.from_text(current).run_id)


def _closing_of(run: RunRecord, services: _Services) -> Generation | None:
    generations = services.ledger.generations(run.dataset_version)
    return next((g for g in generations if g.number == run.generation), None)


def _statistics(generation: Generation | None, services: _Services) -> VersionStatistics | None:
    """Read the statistics in a manifest; None, and an entry in the history, where they cannot be read."""
    if generation is None:
        return None
    try:
        manifest = read_manifest(generation.manifest_path, services.documents)
        return VersionStatistics.from_json(manifest.statistics)
    except (ManifestError, KeyError, TypeError) as error:
        reason = f"drift cannot be measured: {generation.manifest_path}: {error}"
        services.history.record(str(generation.dataset_version), "drift_not_measured", reason)
        return None


def _notify(comparison: _Comparison, pipeline: Pipeline, services: _Services) -> None:
    generation = comparison.generation
    version = generation.dataset_version
    add_notifications(
        pipeline.notify,
        subject=str(version),
        outcome=comparison.decision,
        occasion=f"g{generation.number}",
        content={
            "text": comparison.text,
            "dataset": version.dataset,
            "version": version.version,
            "generation": generation.number,
            "fingerprint": generation.fingerprint,
            "trained_on": str(comparison.trained.dataset_version),
            "run_id": comparison.trained.run_id,
            "measures": comparison.measures,
            "reasons": [reason.to_json() for reason in comparison.drift.reasons[:MAX_LISTED]],
        },
        services=services,
    )
    deliver(str(version), services)


def _record(comparison: _Comparison, services: _Services) -> None:
    services.history.record(
        str(comparison.generation.dataset_version),
        comparison.decision,
        comparison.text,
        trained_on=comparison.trained.run_id,
        measures=comparison.measures,
    )
