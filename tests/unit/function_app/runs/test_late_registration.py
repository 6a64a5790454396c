"""Registration by a person: what it does, what it refuses, and that it is on record."""

from __future__ import annotations

from dataclasses import replace

import pytest

from function_app.domain.errors import NotFoundError, NotRegistrableError
from function_app.domain.jobs import report_path, spec_from_json
from function_app.domain.records import OVERRIDE, RunRecord
from function_app.domain.run_states import RunState
from function_app.registry.promotion import current_model, history_subject
from function_app.runs.late_registration import look_at_registration, register_later
from function_app.runs.registration import model_version
from function_app.sweep.sweep import sweep
from tests.support.world import PIPELINE, World, ended_run, own_script, read_pipeline, unregistered

MODEL = "digits-cnn"
WHY = "the labels of v1 are known to be wrong"
GATE = "val_accuracy: expected at least 0.95, got 0.9"


def registered(world: World, run: RunRecord, by: str = "Ada") -> RunRecord:
    """Register a run's model as a person does; return the run."""
    register_later(run.run_id, world.services, by=by, why=WHY)
    return world.stands(run)


def refusal(world: World, run: RunRecord) -> str:
    """Return why a registration by a person is refused, after checking that it changes nothing."""
    before = world.stands(run)
    with pytest.raises(NotRegistrableError) as caught:
        registered(world, run)
    assert (before, {}) == (world.stands(run), world.models.registered)
    return str(caught.value)


def test_a_person_registers_what_the_gate_did_not_and_is_on_record() -> None:
    """The version, the evidence with who and why, the history of run and model, and the tag that says so."""
    world, run = unregistered()
    after = registered(world, run)
    assert (RunState.REGISTERED, MODEL, model_version(run)) == (after.state, after.model_name, after.model_version)
    override = after.evidence[OVERRIDE]
    assert {"by": "Ada", "why": WHY, "gate": GATE} == {name: override[name] for name in ("by", "why", "gate")}
    ((key, model),) = world.models.registered.items()
    assert ((MODEL, model_version(run)), GATE) == (key, model.tags["landfall.gate_overridden"])
    assert f"azureml://jobs/{run.run_id}/outputs/model" == model.path
    reason = f"Ada registered it as version {model_version(run)} of model {MODEL}: {WHY}; the gate: {GATE}"
    for subject in (run.run_id, history_subject(MODEL)):
        assert reason in [
            entry.reason for entry in world.ledger.history(subject) if entry.action == "gate_overridden"
        ]
    assert {"val_accuracy": 0.9} == after.metrics


def test_twice_is_one_version_and_one_notification_for_each_recipient() -> None:
    """A person who asks again gets the same version; the first reason stands."""
    world, run = unregistered()
    first = registered(world, run)
    found, is_new = register_later(run.run_id, world.services, by="Grace", why="another reason")
    sweep(world.services)
    assert (first, False, first.model_version) == (world.stands(run), is_new, found.version)
    assert 1 == len(world.models.registered)
    assert ["not_registered", "registered"] == [sent.outcome for sent in world.topic.received]
    assert ["not_registered", "registered"] == [sent.outcome for sent in world.people.received]


def test_it_is_not_promoted_and_the_text_says_who_overrode_the_gate() -> None:
    """Serving follows the gate, or a promotion."""
    world, run = unregistered()
    after = registered(world, run)
    assert (None, False) == (current_model(MODEL, world.ledger), after.evidence["promoted"])
    text = str(world.people.received[-1].content["text"])
    assert f"registered by Ada: {WHY}; the gate had decided not to: {GATE}" in text
    assert f"landfall promote {MODEL}:{model_version(run)}" in text


def test_what_it_will_do_is_said_before_and_changes_nothing() -> None:
    """Version, the gate's reason, and that it is not promoted."""
    world, run = unregistered()
    words = "\n".join(look_at_registration(run.run_id, world.services).in_words())
    for said in (
        f"version {model_version(run)} of model {MODEL}",
        GATE,
        "a person overrode the gate",
        "not promoted",
    ):
        assert said in words
    assert (run, {}) == (world.stands(run), world.models.registered)


def test_a_version_that_the_gate_registered_is_answered() -> None:
    """It says which; there is nothing to override."""
    world, run = ended_run()
    found, is_new = register_later(run.run_id, world.services, by="Ada", why=WHY)
    assert (False, True, model_version(run), None) == (is_new, found.is_registered, found.version, found.gate)
    assert OVERRIDE not in world.stands(run).evidence
    assert "is registered already" in "\n".join(found.in_words())


def test_a_registration_that_failed_is_repeated_by_a_person() -> None:
    """The gate held, and the registry refused; a person corrects the cause and registers."""
    world = World()
    run = world.upload_version()
    world.leave_model(run)
    world.models.refusal = "no right to register"
    world.end_job(run)
    assert RunState.NOT_REGISTERED is world.follow(run).state
    assert "Azure ML refused the model" in refusal(world, run)
    world.models.refusal = None
    assert RunState.REGISTERED is registered(world, run).state


def test_a_process_that_died_after_the_registry_took_it_is_repeated() -> None:
    """The version is derived from the run, so it is found."""
    world, run = unregistered()
    save, world.ledger.save_run = world.ledger.save_run, _dying  # type: ignore[assignment, method-assign]
    with pytest.raises(KeyboardInterrupt):
        registered(world, run)
    world.ledger.save_run = save  # type: ignore[method-assign]
    assert RunState.NOT_REGISTERED is world.stands(run).state
    assert RunState.REGISTERED is registered(world, run).state
    assert 1 == len(world.models.registered)


def _dying(_: RunRecord) -> RunRecord:
    raise KeyboardInterrupt


def test_people_are_notified_by_the_sweep_where_the_process_died_before() -> None:
    """The run's row says that they were not."""
    world, run = unregistered()
    add, world.ledger.add_notification = world.ledger.add_notification, _dying  # type: ignore[assignment, method-assign]
    with pytest.raises(KeyboardInterrupt):
        registered(world, run)
    world.ledger.add_notification = add  # type: ignore[method-assign]
    sweep(world.services)
    assert "registered" == world.people.received[-1].outcome


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ("Running", "has not ended: it is submitted"),
        ("Failed", "ended failed, so it has no model"),
        ("Canceled", "ended canceled"),
    ],
)
def test_a_run_without_a_model_is_refused_with_its_state(status: str, said: str) -> None:
    """The run has not ended, has failed, or was canceled."""
    world = World()
    run = world.upload_version()
    if status != "Running":
        run = world.finish(run, status)
    assert said in refusal(world, run)


def test_a_run_that_is_being_decided_on_is_refused() -> None:
    """The gate comes first."""
    world = World()
    run = world.upload_version()
    world.ledger.run_rows[run.run_id] = replace(world.stands(run), state=RunState.COMPLETED)
    assert "is being decided" in refusal(world, run)


def test_a_run_that_another_attempt_continued_names_that_one() -> None:
    """Its own job failed."""
    world = World()
    run = world.upload_version()
    world.jobs.become(run.run_id, "Failed", error="The job was preempted")
    world.follow(run)
    following = world.stands(run).next_run_id
    assert following is not None
    assert f"attempt {following} continued it" in refusal(world, run)


def test_an_unknown_run_is_not_found() -> None:
    """No other error hides a typing mistake."""
    with pytest.raises(NotFoundError, match="landfall-x-a1"):
        look_at_registration("landfall-x-a1", World().services)


def test_a_model_whose_files_are_gone_is_refused() -> None:
    """A version without files would be of no use."""
    world, run = ended_run(val_accuracy=0.9)
    said = refusal(world, run)
    assert "files of the model" in said
    assert f"landfall submit {run.dataset_version} --force" in said


@pytest.mark.parametrize(
    "damage",
    [{"fingerprint": "f" * 64}, {"contents_checked": False}, {"world_size": 1}],
)
def test_what_a_model_was_trained_on_cannot_be_overridden(damage: dict[str, object]) -> None:
    """Other data, content that was not compared, fewer ranks than it was submitted with."""
    world = World()
    run = world.upload_version()
    world.leave_model(run)
    world.write_report(run, {"val_accuracy": 0.99}, **damage)
    world.jobs.become(run.run_id, "Completed")
    assert RunState.NOT_REGISTERED is world.follow(run).state
    assert "not even by a person" in refusal(world, run)


@pytest.mark.parametrize("content", [None, b"no JSON"])
def test_a_training_without_a_report_that_can_be_read_is_refused(content: bytes | None) -> None:
    """It states which content was read."""
    world, run = unregistered()
    path = report_path(spec_from_json(run.spec))
    world.run_outputs.delete(path)
    if content is not None:
        world.run_outputs.write(path, content)
    assert "not even by a person" in refusal(world, run)


def test_a_script_of_the_users_own_may_have_left_no_metrics() -> None:
    """Its machines were checked before it began, and its shards are compared by their ETags."""
    world = World()
    world.services = replace(
        world.services,
        pipelines={"digits": read_pipeline(own_script(PIPELINE))},
        read_script=lambda _: b"import horovod.tensorflow.keras as hvd\nhvd.init()\n",
    )
    run = world.upload_version()
    world.leave_model(run)
    world.jobs.become(run.run_id, "Completed")
    assert RunState.NOT_REGISTERED is world.follow(run).state
    after = registered(world, run)
    assert (RunState.REGISTERED, {}) == (after.state, after.metrics)


def test_a_pipeline_that_names_no_model_is_refused() -> None:
    """There is no name to register under."""
    world, run = unregistered()
    world.change_pipeline(register_=None)
    assert "add register.model to its file" in refusal(world, run)


def test_a_superseded_model_that_the_pipeline_keeps_is_registered_with_that_in_its_lineage() -> None:
    """The person knows that newer data are there."""
    world, run = unregistered()
    (closing,) = world.ledger.generations(run.dataset_version)
    world.ledger.add_generation(replace(closing, number=2, fingerprint="e" * 64))
    registered(world, run)
    ((_, model),) = world.models.registered.items()
    assert "was superseded by generation 2" in model.tags["landfall.superseded"]


def test_a_secret_in_the_reason_is_not_kept() -> None:
    """It goes to the history, to tags and to people."""
    world, run = unregistered()
    register_later(run.run_id, world.services, by="Ada", why="see https://x?sig=abcdefghijklmnop1234567890%3D\nthere")
    why = world.stands(run).evidence[OVERRIDE]["why"]
    assert "abcdefghijklmnop" not in why
    assert "\n" not in why
