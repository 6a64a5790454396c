"""Promotion: one version of a model is current, whatever dies on the way, and however many promote at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from function_app.config.registration import Register
from function_app.domain.errors import ServiceUnavailableError, SubmissionRefusedError
from function_app.domain.jobs import ModelRegistration
from function_app.domain.model_versions import CURRENT_TAG, CurrentModel, ModelVersion, current_mark
from function_app.registry.promotion import current_model, finish_promotions, history_subject, promote
from function_app.testing.azure_ml import MemoryModels
from tests.support.world import World

MODEL = "digits-cnn"
FIRST, SECOND, THIRD = (ModelVersion(version=str(number), run_id=f"landfall-{number}-a1") for number in (1, 2, 3))


class FailingModels(MemoryModels):
    """Fails at a chosen call of ``tag``."""

    fails_at: int = 0

    def tag(self, name: str, version: str, tag: str, value: str | None) -> None:
        """See ModelRegistry."""
        self.fails_at -= 1
        if self.fails_at == 0:
            raise ServiceUnavailableError("Azure ML did not answer")
        super().tag(name, version, tag, value)


def world_of_versions() -> World:
    """A world with three versions, of which the first is current."""
    world = World(models=FailingModels())
    for one in (FIRST, SECOND, THIRD):
        path = f"azureml://jobs/{one.run_id}/outputs/model"
        made = ModelRegistration(name=MODEL, version=one.version, path=path, description="", tags={})
        world.models.register(made)
    assert promote(MODEL, FIRST, world.services, by="a test", instead_of=None)
    return world


def tagged(world: World) -> list[str]:
    """Return the versions with the tag, the latest promotion last."""
    found = [(m.tags[CURRENT_TAG], v) for (_, v), m in world.models.registered.items() if CURRENT_TAG in m.tags]
    return [version for _, version in sorted(found)]


def test_a_promotion_moves_the_tag_and_says_so() -> None:
    """The histories of the model and of the run have it."""
    world = world_of_versions()
    promote(MODEL, SECOND, world.services, by="Ada", instead_of=current_model(MODEL, world.ledger))
    assert ["2"] == tagged(world)
    last = world.ledger.history(history_subject(MODEL))[-1]
    assert "version 2 of model digits-cnn is current instead of version 1: promoted by Ada" == last.reason
    assert ["model_promoted"] == world.actions(SECOND.run_id)


def test_promoting_the_current_version_again_changes_nothing() -> None:
    """Its time does not change either."""
    world = world_of_versions()
    before = current_model(MODEL, world.ledger)
    assert promote(MODEL, FIRST, world.services, by="Ada", instead_of=None)
    assert before == current_model(MODEL, world.ledger)


@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_promotion_that_died_is_finished_by_the_sweep(fails_at: int) -> None:
    """It died before the new version had the tag or the old one lost it; meanwhile the latest time decides."""
    world = world_of_versions()
    assert isinstance(world.models, FailingModels)
    world.models.fails_at = fails_at
    with pytest.raises(ServiceUnavailableError):
        promote(MODEL, SECOND, world.services, by="Ada", instead_of=current_model(MODEL, world.ledger))
    assert (["1"], ["1", "2"])[fails_at - 1] == tagged(world)
    finish_promotions(world.services)
    assert ["2"] == tagged(world)


@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_promotion_that_died_is_finished_by_the_next_one(fails_at: int) -> None:
    """Otherwise a version that was current in between would keep the tag."""
    world = world_of_versions()
    assert isinstance(world.models, FailingModels)
    world.models.fails_at = fails_at
    with pytest.raises(ServiceUnavailableError):
        promote(MODEL, SECOND, world.services, by="Ada", instead_of=current_model(MODEL, world.ledger))
    assert promote(MODEL, THIRD, world.services, by="Ada", instead_of=current_model(MODEL, world.ledger))
    assert ["3"] == tagged(world)


def test_a_previous_version_that_was_deleted_has_no_tag_to_lose() -> None:
    """Otherwise no promotion of the model could be finished again."""
    world = world_of_versions()
    del world.models.registered[MODEL, FIRST.version]
    assert promote(MODEL, SECOND, world.services, by="Ada", instead_of=current_model(MODEL, world.ledger))
    current = current_model(MODEL, world.ledger)
    assert (["2"], True) == (tagged(world), current is not None and current.is_tagged)


def test_a_current_version_that_was_deleted_before_its_tag_hinders_no_promotion() -> None:
    """Otherwise neither a run nor a person could promote another version."""
    world = world_of_versions()
    lost = CurrentModel(**vars(SECOND), promoted_at="2026-11-20T12:00:00+00:00", by="Ada")
    assert world.ledger.change_mark(current_mark(MODEL), world.ledger.mark(current_mark(MODEL)), lost.to_text())
    del world.models.registered[MODEL, SECOND.version]
    finish_promotions(world.services)
    assert promote(MODEL, THIRD, world.services, by="Grace", instead_of=current_model(MODEL, world.ledger))
    current = current_model(MODEL, world.ledger)
    assert ("3", True) == (current and current.version, current and current.is_tagged)


def test_the_sweep_finishes_the_other_models_although_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is raised after the last model."""
    world = world_of_versions()
    tag = world.models.tag

    def refused(model: str, version: str, name: str, value: str | None) -> None:
        if model != MODEL:
            raise SubmissionRefusedError(f"tag model {model} version {version}: not allowed")
        tag(model, version, name, value)

    monkeypatch.setattr(world.models, "tag", refused)
    monkeypatch.setattr(world.models, "find", lambda *_: world.models.registered[MODEL, SECOND.version])
    world.add_pipelines("letters", register_=Register(model="a-deleted-model"))
    for model in (MODEL, "a-deleted-model"):
        lost = CurrentModel(**vars(SECOND), promoted_at="2026-11-20T12:00:00+00:00", by="Ada")
        before = world.ledger.mark(current_mark(model))
        assert world.ledger.change_mark(current_mark(model), before, lost.to_text())
    with pytest.raises(SubmissionRefusedError, match="tag model a-deleted-model version 2"):
        finish_promotions(world.services)
    assert "2" in tagged(world)


def test_of_two_promotions_at_once_one_wins() -> None:
    """The other one compared itself with a version that is no longer current."""
    world = world_of_versions()
    seen = current_model(MODEL, world.ledger)
    assert promote(MODEL, SECOND, world.services, by="Ada", instead_of=seen)
    assert not promote(MODEL, THIRD, world.services, by="Grace", instead_of=seen)
    assert ["2"] == tagged(world)


def test_a_mark_that_changes_between_looking_and_writing_is_not_overwritten() -> None:
    """The compare-and-swap decides."""
    world = world_of_versions()
    seen = current_model(MODEL, world.ledger)
    assert seen is not None
    change = world.ledger.change_mark

    def late(name: str, before: str | None, after: str) -> bool:
        world.ledger.change_mark = change  # type: ignore[method-assign]
        assert promote(MODEL, SECOND, world.services, by="Ada", instead_of=seen)
        return change(name, before, after)

    world.ledger.change_mark = late  # type: ignore[method-assign]
    assert not promote(MODEL, THIRD, replace(world.services), by="Grace", instead_of=seen)
    assert ["2"] == tagged(world)
