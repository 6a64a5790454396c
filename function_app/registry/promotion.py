"""Promotion: which version of a model is current. The ledger's mark decides, and a tag in the registry follows it.

The mark changes by compare-and-swap, so of two promotions at once one wins. Then the new version gets the tag, and
the one before loses it, in this order: at each moment at least one version has the tag, and where two have it, the
later time in it decides. The mark remembers until both are done, and the next promotion or the sweep finishes what a
process that died has left.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from function_app.domain.errors import LedgerConflictError, NotFoundError, SubmissionRefusedError
from function_app.domain.model_versions import CURRENT_TAG, CurrentModel, ModelVersion, current_mark
from function_app.ports import Notes
from function_app.services import RunServices
from shared.errors import LandfallError

RUN_ID_TAG = "landfall.run_id"
"""The tag of each registered version that names the run which trained it."""


def current_model(model: str, ledger: Notes) -> CurrentModel | None:
    """Return the current version of a model, None if none was promoted."""
    text = ledger.mark(current_mark(model))
    return None if text is None else CurrentModel.from_text(text)


def history_subject(model: str) -> str:
    """Return the subject under which the history keeps the promotions of a model."""
    return f"models/{model}"


def promote(
    model: str, version: ModelVersion, services: RunServices, *, by: str, instead_of: CurrentModel | None
) -> bool:
    """Make a version current; return False if another one than ``instead_of`` is current in the meantime.

    Promoting the current version again finishes its tags and changes nothing else.
    """
    current = finish_promotion(model, services)
    if current is not None and current.version == version.version:
        return True
    if _as_compared(current) != _as_compared(instead_of):
        return False
    previous = None if current is None else ModelVersion(version=current.version, run_id=current.run_id)
    promoted_at = services.clock().isoformat(timespec="microseconds")
    promoted = CurrentModel(**vars(version), promoted_at=promoted_at, by=by, previous=previous)
    before = None if current is None else current.to_text()
    if not services.ledger.change_mark(current_mark(model), before, promoted.to_text()):
        return False
    instead = f" instead of version {previous.version}" if previous else ""
    reason = f"version {version.version} of model {model} is current{instead}: promoted by {by}"
    for subject in (history_subject(model), version.run_id):
        services.history.record(subject, "model_promoted", reason, model=model, version=version.version)
    finish_promotion(model, services)
    return True


def promote_by_person(model: str, version: str, services: RunServices, *, by: str) -> CurrentModel:
    """Make any registered version the current one. Raises NotFoundError, LedgerConflictError."""
    named, seen = registered_version(model, version, services), current_model(model, services.ledger)
    is_promoted = promote(model, named, services, by=by, instead_of=seen)
    current = current_model(model, services.ledger)
    if not is_promoted or current is None:
        raise LedgerConflictError(f"another version of model {model} was promoted at the same time; try again")
    return current


def registered_version(model: str, version: str, services: RunServices) -> ModelVersion:
    """Return a version that Landfall registered. Raises NotFoundError."""
    found = services.models.find(model, version)
    run_id = None if found is None else found.tags.get(RUN_ID_TAG)
    if run_id is None:
        raise NotFoundError(f"model {model} has no version {version} that Landfall registered")
    return ModelVersion(version=version, run_id=run_id)


def _as_compared(current: CurrentModel | None) -> str | None:
    return None if current is None else current.version


def finish_promotion(model: str, services: RunServices) -> CurrentModel | None:
    """Let the tags follow the mark where a process died before that; return the current version.

    A version that was deleted in Azure ML takes no tag, and hinders neither this promotion nor the next one.
    """
    current = current_model(model, services.ledger)
    if current is None or current.is_tagged:
        return current
    is_there = _tag_if_there(model, current.version, current.promoted_at, services)
    if current.previous is not None:
        _tag_if_there(model, current.previous.version, None, services)
    if not is_there:
        return current  # the sweep tries again
    finished = replace(current, is_tagged=True)
    services.ledger.change_mark(current_mark(model), current.to_text(), finished.to_text())
    return current_model(model, services.ledger)


def _tag_if_there(model: str, version: str, value: str | None, services: RunServices) -> bool:
    """Set or remove the tag of the current version; return False if Azure ML does not have the version."""
    try:
        services.models.tag(model, version, CURRENT_TAG, value)
    except SubmissionRefusedError:
        if services.models.find(model, version) is not None:
            raise
        return False
    return True


def finish_promotions(services: RunServices) -> None:
    """Finish the promotions of all models that pipelines register. Raises the first error after the last model."""
    errors = []
    for model in _models(services):
        try:
            finish_promotion(model, services)
        except LandfallError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _models(services: RunServices) -> Iterable[str]:
    registers = (pipeline.register_ for pipeline in services.pipelines.values())
    return sorted({register.model for register in registers if register is not None})
