"""Registration by a person of a model that the gate did not register, recorded with the person and the reason.

A person may know more than the gate, but cannot override the lineage: if the training data are not known, nothing is
registered. The version is derived from the run, like the gate's own, so a repeated request finds it even after a
crash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from function_app.domain.errors import NotFoundError, NotRegistrableError, SubmissionRefusedError
from function_app.domain.jobs import ModelRegistration, model_folder, spec_from_json
from function_app.domain.model_versions import CurrentModel
from function_app.domain.records import OVERRIDE, RunRecord
from function_app.domain.run_states import SETTLED, Actor, RunState
from function_app.registry.gate import GateError
from function_app.registry.passport import override_members, with_passport
from function_app.registry.promotion import current_model, history_subject
from function_app.runs.admission import submit_again
from function_app.runs.ending import end_run
from function_app.runs.registration import registration_by_person
from function_app.runs.transitions import move_run
from function_app.services import RunServices
from shared.safe_text import mask_secrets, one_line
from shared.training_report import TrainingReport

MAX_WHY_CHARS = 1000
MAX_GATE_CHARS = 1000


@dataclass(frozen=True, kw_only=True)
class LateRegistration:
    """The effect of a registration by a person, or the result of an earlier one."""

    run: RunRecord
    model: str
    version: str
    is_registered: bool
    """Whether the version already exists."""
    gate: str | None
    """Why the gate did not register it; None if it did."""
    current: CurrentModel | None
    """The current version, which does not change."""
    made: ModelRegistration | None = None
    report: TrainingReport | None = None

    def in_words(self) -> Iterator[str]:
        """Yield descriptions of its effects, shown before a person confirms."""
        named = f"version {self.version} of model {self.model}"
        if self.is_registered:
            yield f"Run {self.run.run_id} is registered already, as {named}. Nothing is done."
            return
        yield f"The model of run {self.run.run_id} is registered as {named}."
        yield f"The gate decided not to: {self.gate}"
        yield "The evidence of the version will say that a person overrode the gate, who, and why."
        stays = f"version {self.current.version} stays" if self.current else "no version is"
        to_promote = f"landfall promote {self.model}:{self.version}"
        yield f"It is not promoted: {stays} the current one. To promote it: {to_promote}"


def look_at_registration(run_id: str, services: RunServices) -> LateRegistration:
    """Return the effect of registering a run's model, without changing anything.

    Raises NotFoundError, NotRegistrableError, PipelineOutOfServiceError.
    """
    run = services.ledger.run(run_id)
    if run is None:
        raise NotFoundError(f"run {run_id} does not exist")
    if run.state is RunState.REGISTERED and run.model_name and run.model_version:
        return LateRegistration(
            run=run,
            model=run.model_name,
            version=run.model_version,
            is_registered=True,
            gate=run.evidence[OVERRIDE]["gate"] if run.is_overridden else None,
            current=current_model(run.model_name, services.ledger),
        )
    _refuse_without_model(run)
    made, report = _made(run, services)
    return LateRegistration(
        run=run,
        model=made.name,
        version=made.version,
        is_registered=False,
        gate=(run.reason or "no reason is on record")[:MAX_GATE_CHARS],
        current=current_model(made.name, services.ledger),
        made=made,
        report=report,
    )


def _made(run: RunRecord, services: RunServices) -> tuple[ModelRegistration, TrainingReport]:
    """Return the version to create, with the run's report. Raises NotRegistrableError, PipelineOutOfServiceError."""
    register = services.pipeline_of(run.dataset_version.dataset).register_
    if register is None:
        raise NotRegistrableError(
            f"pipeline {run.pipeline} names no model: add register.model to its file, deploy it, then register again"
        )
    again = f"to train again: landfall submit {run.dataset_version} --force"
    try:
        made = registration_by_person(run, register, services, tags={"gate_overridden": run.reason or "true"})
    except GateError as error:
        raise NotRegistrableError(
            f"the model of run {run.run_id} cannot be registered, not even by a person: {error}; {again}"
        ) from error
    folder = model_folder(spec_from_json(run.spec))
    if not services.run_outputs.has_any(folder):
        raise NotRegistrableError(
            f"the files of the model of run {run.run_id} are gone: there is nothing in {folder} of the runs "
            f"container; {again}"
        )
    return made


def _refuse_without_model(run: RunRecord) -> None:
    if run.state is RunState.NOT_REGISTERED:
        return
    if run.state is RunState.COMPLETED:
        problem = "its job has completed and its registration is being decided: try again in a minute"
    elif run.state not in SETTLED:
        problem = f"it has not ended: it is {run.state}; its model is registered automatically if it is good enough"
    elif run.next_run_id is not None:
        problem = f"it ended {run.state}, and attempt {run.next_run_id} continued it: register that one"
    else:
        problem = f"it ended {run.state}, so it has no model; to train again: {submit_again(run)}"
    raise NotRegistrableError(f"run {run.run_id} cannot be registered: {problem}")


def register_later(run_id: str, services: RunServices, *, by: str, why: str) -> tuple[LateRegistration, bool]:
    """Register the model of a completed run against the gate's decision; return it, and whether this call did it.

    Repeating it changes nothing. Raises what `look_at_registration` does, and NotRegistrableError where Azure ML
    refuses the version.
    """
    found = look_at_registration(run_id, services)
    if found.made is None or found.report is None:
        return found, False
    why = one_line(mask_secrets(why))[:MAX_WHY_CHARS]
    try:
        decision = override_members(found.run.evidence, by=by, why=why, gate=found.gate)
        services.models.register(with_passport(found.made, found.run, found.report, decision, services))
    except SubmissionRefusedError as error:
        raise NotRegistrableError(f"Azure ML refused the model of run {run_id}: {error}") from error
    run, moved = move_run(
        services.ledger,
        found.run,
        RunState.REGISTERED,
        by=Actor.PERSON,
        now=services.clock(),
        **_members(found, found.report, services, by=by, why=why),
    )
    if moved:
        reason = (
            f"{by} registered it as version {found.version} of model {found.model}: {why}; the gate: {found.gate}"
        )
        for subject in (run_id, history_subject(found.model)):
            services.history.record(subject, "gate_overridden", reason, model=found.model, version=found.version)
        end_run(run, services, by=Actor.PERSON)
    return look_at_registration(run_id, services), moved


def _members(
    found: LateRegistration, report: TrainingReport, services: RunServices, *, by: str, why: str
) -> Mapping[str, Any]:
    """Return what the run's row keeps. Without ``notified_at`` the sweep notifies people if this process dies."""
    override = {"by": by, "why": why, "at": services.clock().isoformat(timespec="seconds"), "gate": found.gate}
    stays = f"not promoted: a person registered it; landfall promote {found.model}:{found.version}"
    return {
        "model_name": found.model,
        "model_version": found.version,
        "metrics": dict(report.metrics),
        "reason": f"registered by {by}: {why}; the gate had decided not to: {found.gate}",
        "evidence": {**found.run.evidence, OVERRIDE: override, "promoted": False, "promotion": stays},
        "notified_at": None,
        "failure_class": None,
        "failure_evidence": None,
        "remedy": None,
        "remedy_reason": None,
    }
