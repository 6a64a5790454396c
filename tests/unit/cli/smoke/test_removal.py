"""What a smoke test made is removed, whatever of it is refused; and what an interrupted one left."""

from __future__ import annotations

import pytest
from azure.core.exceptions import HttpResponseError

from cli.deploy.workspace import WorkspaceId
from cli.smoke.removal import remove_all
from tests.unit.cli.smoke.deployment import RUN, SUCCESS, Deployment, forbidden


class Archive:
    """A workspace that archives models."""

    def __init__(self, refusal: HttpResponseError | None = None) -> None:
        self.opened: list[WorkspaceId] = []
        self.archived: list[tuple[str, str]] = []
        self._refusal = refusal

    def open(self, identity: WorkspaceId) -> Archive:
        self.opened.append(identity)
        return self

    def archive_model(self, name: str, version: str) -> None:
        if self._refusal:
            raise self._refusal
        self.archived.append((name, version))


@pytest.fixture
def left() -> Deployment:
    """What an interrupted test left: a model, a job that runs, two uploads. Others' upload, and an earlier model."""
    deployment = Deployment()
    deployment.runs = {
        "run-removed": {**RUN, **SUCCESS, "run_id": "run-removed", "version": "v0", "model_version": "0"},
        "run-training": {**RUN, **SUCCESS, "run_id": "run-training", "version": "v1"},
        "run-canceled": {**RUN, "state": "running", "run_id": "run-canceled"},
    }
    blobs = ("landfall-smoke/v1/a", "landfall-smoke/v2/notes.part", "digits/v1/a")
    deployment.data.blobs = dict.fromkeys(blobs, b"x")
    return deployment


def test_what_an_interrupted_test_left_is_removed(left: Deployment) -> None:
    """Its job is canceled, its uploads are deleted, its model is archived; others' uploads stay."""
    archive = Archive()
    found = remove_all(left.api(), left.data, archive.open)  # type: ignore[arg-type]
    assert ([], [("landfall-smoke", "1")]) == (found.problems, archive.archived)
    assert [WorkspaceId(subscription="s", resource_group="g", workspace="w")] == archive.opened
    assert ("canceled", ["digits/v1/a"]) == (left.runs["run-canceled"]["state"], list(left.data.blobs))
    assert 3 == len(found.removed)
    assert any("az storage blob delete-batch" in text for text in found.stays)


def test_what_is_refused_is_named_and_the_rest_is_removed(left: Deployment) -> None:
    """One refusal does not keep the others from being tried."""
    left.data.refuses_deletions = forbidden()
    archive = Archive(refusal=forbidden())
    found = remove_all(left.api(), left.data, archive.open)  # type: ignore[arg-type]
    assert 2 == len(found.problems)
    assert all("not authorized" in problem for problem in found.problems)
    assert "canceled" == left.runs["run-canceled"]["state"]


def test_an_account_that_cannot_be_listed_is_named(left: Deployment) -> None:
    """The job, which costs money, is canceled all the same."""
    left.data.refuses_lists = forbidden()
    found = remove_all(left.api(), left.data, Archive().open)  # type: ignore[arg-type]
    assert [True] == ["were not deleted: This request is not authorized" in problem for problem in found.problems]
    assert "canceled" == left.runs["run-canceled"]["state"]


def test_an_app_that_does_not_answer_keeps_no_upload(left: Deployment) -> None:
    """The uploads are deleted without it; the runs are named as a problem."""
    left.down_until_s = 1.0
    found = remove_all(left.api(), left.data, Archive().open)  # type: ignore[arg-type]
    assert ["digits/v1/a"] == list(left.data.blobs)
    assert ["the runs were not canceled"] == [problem.partition(":")[0] for problem in found.problems]


def test_where_there_is_nothing_nothing_is_done() -> None:
    """No workspace is opened either, because that would need a sign-in."""
    archive = Archive()
    found = remove_all(Deployment().api(), Deployment().data, archive.open)  # type: ignore[arg-type]
    assert ([], [], [], []) == (found.removed, found.problems, found.stays, archive.opened)
