"""The passport: what a registered model was made of, and whether that is still what is there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from function_app.domain.errors import DocumentTooLargeError, NotFoundError
from function_app.domain.jobs import NO_COMMIT, JobAssets
from function_app.domain.passports import (
    DIGEST,
    PASSPORT_TAG,
    CheckResult,
    Passport,
    PassportError,
    read_passport,
    recomputed,
    signed,
    to_text,
)
from function_app.domain.records import RunRecord
from function_app.registry import passport as passports
from function_app.registry.examples import examples_path
from function_app.registry.gate import read_report
from function_app.registry.passport import find_passport, model_file_path, passport_path, with_passport
from function_app.registry.verification import verify
from function_app.runs.late_registration import register_later
from tests.support.world import TRAIN_SHARDS, World, shard_content, unregistered
from tests.unit.function_app.registry.test_challenge import challenge, newest, results

WEIGHTS = b"weights"


def registered() -> tuple[World, RunRecord]:
    """A world with a model whose files have digests, and whose run left the results of each example."""
    world = World()
    run = world.upload_version()
    world.run_outputs.write(model_file_path(run, "saved_model/weights"), WEIGHTS)
    world.run_outputs.write(examples_path(run), results(384))
    stated = {"saved_model/weights": hashlib.sha256(WEIGHTS).hexdigest()}
    world.write_report(run, {"val_accuracy": 0.96}, details={"model_files": stated})
    world.jobs.become(run.run_id, "Completed")
    return world, world.follow(run)


def passport_of(world: World, run: RunRecord) -> Passport:
    """Return the stored passport of a run's model."""
    return find_passport(str(run.model_name), str(run.model_version), world.services)[0]


def outcome(world: World, run: RunRecord) -> dict[str, CheckResult]:
    """Verify a run's model; return name → result."""
    return {one.name: one.result for one in verify(str(run.model_name), str(run.model_version), world.services)}


def differing(world: World, run: RunRecord) -> set[str]:
    """Return the names of the checks that differ."""
    return {name for name, result in outcome(world, run).items() if result is CheckResult.DIFFERS}


def test_a_passport_leads_from_the_events_to_the_decision() -> None:
    """Each part that the issue names, and the digest over it is a tag of the model."""
    world, run = registered()
    passport = passport_of(world, run)
    [model] = world.models.registered.values()
    shard = passport["data"]["shards"][0]
    row = next(row for row in world.ledger.shards(run.dataset_version) if row.name == shard["name"])
    assert (row.crc32c, row.etag, row.validated_at.isoformat(timespec="microseconds")) == (
        shard["crc32c"],
        shard["etag"],
        shard["judged_at"],
    )
    assert (run.fingerprint, run.spec, run.spec_hash) == (
        passport["data"]["fingerprint"],
        passport["job"]["spec"],
        passport["job"]["spec_hash"],
    )
    assert ("abc", "2" * 40, f"sha256:{'1' * 64}") == (
        passport["code"]["digest"],
        passport["code"]["commit"],
        passport["environment"]["image_digest"],
    )
    assert ([run.run_id], {"val_accuracy": 0.96}, True) == (
        [one["run_id"] for one in passport["run"]["attempts"]],
        passport["metrics"],
        passport["decision"]["promote"],
    )
    assert run.evidence["intervals"] == passport["decision"]["intervals"]
    assert [{"metric": "val_accuracy", "at_least": 0.95}] == passport["decision"]["require"]
    assert passport[DIGEST] == model.tags[PASSPORT_TAG]


def test_all_that_can_be_recomputed_agrees() -> None:
    """Nothing is left out where the run left everything."""
    world, run = registered()
    assert {CheckResult.OK} == set(outcome(world, run).values())


def _forge(world: World, run: RunRecord, change: Callable[[dict[str, Any]], None], *, sign: bool) -> None:
    """Change the stored passport; ``sign`` gives it a digest that fits, and the model's tag, as a forger would."""
    tag = passport_of(world, run)[DIGEST]
    path = passport_path(run, str(tag))
    members = read_passport(world.run_outputs.documents[path])
    change(members)
    if sign:
        members = signed(members)
        world.models.tag(str(run.model_name), str(run.model_version), PASSPORT_TAG, members[DIGEST])
    world.run_outputs.documents[passport_path(run, members[DIGEST] if sign else str(tag))] = to_text(members).encode()


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], None], set[str]]] = {
    "metric": (lambda p: p["metrics"].update(val_accuracy=0.99), {"run on record"}),
    "bad metric": (lambda p: p["metrics"].update(val_accuracy=0.9), {"conditions", "run on record"}),
    "CRC32C": (
        lambda p: p["data"]["shards"][0].update(crc32c="00000000"),
        {"fingerprint", "manifest", "shards in storage"},
    ),
    "option": (lambda p: p["job"]["spec"].update(command="true"), {"job specification", "run on record"}),
    "code": (lambda p: p["code"].update(id="other"), {"links", "lineage tags"}),
    "commit": (lambda p: p["code"].update(commit="3" * 40), {"environment and code"}),
    "interval": (lambda p: p["decision"]["intervals"]["val_accuracy"].append(1), {"intervals"}),
    "model file": (lambda p: p["model"]["files"].update({"saved_model/weights": "0" * 64}), {"model files"}),
    "path": (lambda p: p["model"]["files"].update({"../report/training_report.json": "0" * 64}), {"model files"}),
    "part": (lambda p: p.pop("evidence"), {"evidence files"}),
}


@pytest.mark.parametrize("changed", CHANGES)
def test_a_changed_passport_differs_from_its_digest(changed: str) -> None:
    """This holds for every part, including nested ones."""
    world, run = registered()
    change, found = CHANGES[changed]
    _forge(world, run, change, sign=False)
    assert {"digest over itself", *found} == differing(world, run)


@pytest.mark.parametrize("changed", CHANGES)
def test_a_passport_that_was_signed_again_differs_from_the_world(changed: str) -> None:
    """This holds even if the model's tag was changed with it."""
    world, run = registered()
    change, found = CHANGES[changed]
    _forge(world, run, change, sign=True)
    assert found == differing(world, run)


def test_a_tag_that_names_another_digest_differs() -> None:
    """Digest and tag must agree; the place of the document begins with the digest, as does the tag here."""
    world, run = registered()
    tag = str(passport_of(world, run)[DIGEST])
    world.models.tag(str(run.model_name), str(run.model_version), PASSPORT_TAG, tag[:-1] + ("0", "1")[tag[-1] == "0"])
    assert {"tag of the model"} == differing(world, run)


def test_a_changed_byte_of_the_model_the_report_or_the_data_is_noticed() -> None:
    """A deleted file is noticed, too; the passport itself is unchanged."""
    world, run = registered()
    world.run_outputs.write(model_file_path(run, "saved_model/weights"), b"weightz")
    assert {"model files"} == differing(world, run)
    world.run_outputs.delete(model_file_path(run, "saved_model/weights"))
    assert {"model files"} == differing(world, run)
    world, run = registered()
    world.write_report(run, {"val_accuracy": 0.96})
    assert {"evidence files"} == differing(world, run)
    world, run = registered()
    world.put(TRAIN_SHARDS[0], shard_content(9))
    assert {"shards in storage"} == differing(world, run)
    world, run = registered()
    world.overwrite_manifests(b"{}")
    assert {"manifest"} == differing(world, run)


def test_a_file_that_was_added_to_the_model_is_named() -> None:
    """Anything that loads the folder would load the file, too."""
    world, run = registered()
    world.run_outputs.write(model_file_path(run, "saved_model/extra.so"), b"code")
    checks = verify("digits-cnn", str(run.model_version), world.services)
    [check] = [one for one in checks if one.name == "model files"]
    assert (CheckResult.DIFFERS, True, True) == (
        check.result,
        "found 1 that the passport does not name" in check.text,
        "saved_model/extra.so" in str(check.found),
    )


def test_data_that_were_replaced_or_deleted_since_are_no_lie() -> None:
    """What a model was trained on may go; the passport still has its CRC32C."""
    world, run = registered()
    world.remove(f"digits/v1/{TRAIN_SHARDS[0]}")
    assert CheckResult.NOT_RECOMPUTED is outcome(world, run)["shards in storage"]
    world = challenge(results(396), 0.99)
    first = world.ledger.runs()[-1]
    assert CheckResult.NOT_RECOMPUTED is outcome(world, first)["shards in storage"]
    assert set() == differing(world, first)


def test_the_passport_of_a_challenger_has_the_comparison() -> None:
    """It equals that of the run, with the interval in words."""
    world = challenge(results(396), 0.99)
    run = newest(world)
    compared = passport_of(world, run)["decision"]["comparison"]
    assert run.evidence["comparison"]["words"] == compared["words"]
    assert set() == differing(world, run)


def test_the_passport_of_a_person_says_who_why_and_what_the_gate_had_decided() -> None:
    """Its conditions do not hold, and everything else agrees."""
    world, run = unregistered()
    register_later(run.run_id, world.services, by="Ada", why="relabelled")
    run = world.stands(run)
    decision = passport_of(world, run)["decision"]
    assert ("Ada", "relabelled", run.evidence["override"]["gate"], False) == (
        decision["by"],
        decision["override"]["why"],
        decision["override"]["gate"],
        decision["promote"],
    )
    assert set() == differing(world, run)
    assert CheckResult.NOT_RECOMPUTED is outcome(world, run)["conditions"]


def test_many_shards_are_in_the_manifest_that_the_passport_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The passport stays small, and the CRC32C of each shard are verified there."""
    monkeypatch.setattr(passports, "MAX_LISTED_SHARDS", 2)
    world, run = registered()
    assert (None, 3) == (passport_of(world, run)["data"]["shards"], passport_of(world, run)["data"]["num_shards"])
    found = outcome(world, run)
    assert (CheckResult.OK, CheckResult.NOT_RECOMPUTED) == (found["manifest"], found["fingerprint"])
    world.overwrite_manifests(b"{}")
    assert {"manifest"} == differing(world, run)


def test_shards_that_are_too_large_to_read_are_compared_by_etag(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write changes the ETag, so that too is noticed."""
    monkeypatch.setattr("function_app.registry.verification.MAX_READ_BYTES", 2000)
    world, run = registered()
    [shards] = [one for one in verify("digits-cnn", str(run.model_version), world.services) if "storage" in one.name]
    assert (CheckResult.OK, True) == (shards.result, "ETag" in shards.text)
    world.put(TRAIN_SHARDS[0], shard_content(9))
    assert "shards in storage" in differing(world, run)


def test_evidence_that_grew_beyond_what_is_read_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not what was registered, whatever it is."""
    world, run = registered()

    def refuse(path: str, *, max_bytes: int) -> bytes:
        raise DocumentTooLargeError(f"{path} has more than {max_bytes} bytes")

    monkeypatch.setattr("function_app.registry.verification.sha256_of", lambda path, _, **most: refuse(path, **most))
    assert {"evidence files"} == differing(world, run)


def test_of_two_handlers_the_one_that_registers_leaves_the_passport_of_the_model() -> None:
    """The other one, which decided otherwise, leaves a document that no model names."""
    world, run = registered()
    registration = world.models.registered["digits-cnn", str(run.model_version)]
    report = read_report(run, world.run_outputs, world.jobs)
    other = with_passport(registration, run, report, {"by": "another handler"}, world.services)
    world.models.register(other)
    assert other.tags[PASSPORT_TAG] != passport_of(world, run)[DIGEST]
    assert set() == differing(world, run)


def test_what_azure_ml_does_not_say_keeps_no_model_from_being_registered() -> None:
    """The passport says that it is unknown."""
    world = World()
    world.jobs.known_assets = JobAssets(why_no_commit=NO_COMMIT)
    run = world.finish(world.upload_version())
    passport = passport_of(world, run)
    assert (None, None, None, NO_COMMIT) == (
        passport["environment"]["image"],
        passport["environment"]["image_digest"],
        passport["code"]["commit"],
        passport["code"]["why_no_commit"],
    )
    assert CheckResult.NOT_RECOMPUTED is outcome(world, run)["environment and code"]


def test_a_model_without_a_passport_says_why() -> None:
    """An unknown version, a deleted or damaged document, and a version of an earlier release."""
    world, run = registered()
    model, version = str(run.model_name), str(run.model_version)
    with pytest.raises(NotFoundError, match="has no version 7"):
        find_passport(model, "7", world.services)
    path = passport_path(run, str(passport_of(world, run)[DIGEST]))
    content = world.run_outputs.documents.pop(path)
    with pytest.raises(NotFoundError, match=path):
        find_passport(model, version, world.services)
    world.run_outputs.documents[path] = content[:-9]
    with pytest.raises(PassportError, match="is not JSON"):
        find_passport(model, version, world.services)
    world.models.tag(model, version, PASSPORT_TAG, None)
    with pytest.raises(NotFoundError, match="registered by an earlier release"):
        find_passport(model, version, world.services)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[" * 100_000, "is not JSON"),
        ("[]", "not a JSON object with a digest"),
        ('{"digest": 7}', "not a JSON object with a digest"),
        ('{"digest": "a", "format_version": 2}', "expected 1, got 2"),
    ],
)
def test_what_is_no_passport_is_named(text: str, problem: str) -> None:
    """A file from outside may be anything."""
    with pytest.raises(PassportError, match=problem):
        read_passport(text)


def test_a_document_with_nothing_in_it_differs_everywhere() -> None:
    """There is no exception."""
    empty = {"format_version": 1, DIGEST: "0"}
    assert {CheckResult.DIFFERS} == {one.result for one in recomputed(empty)}
    assert {CheckResult.DIFFERS} == {one.result for one in recomputed({**empty, "data": [], "job": 7, "run": None})}


def test_the_digest_is_that_of_canonical_json() -> None:
    """Anybody can compute it without Landfall: sorted members, no spaces, SHA-256."""
    world, run = registered()
    members = json.loads(to_text(passport_of(world, run)))
    stated = members.pop(DIGEST)
    text = json.dumps(members, sort_keys=True, separators=(",", ":"))
    assert stated == hashlib.sha256(text.encode()).hexdigest()
