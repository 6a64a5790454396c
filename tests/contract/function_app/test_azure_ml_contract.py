"""Jobs and models: the behaviour that the double shares with the real adapter on the real client."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from cli.deploy.workspace import AzureMlWorkspace
from function_app.adapters.azure_ml import WorkspaceClient
from function_app.domain.capacity import ROLE_MISSING
from function_app.domain.errors import SubmissionRefusedError
from function_app.domain.jobs import NO_COMMIT, ModelRegistration
from function_app.testing.azure_ml import MemoryJobs
from tests.contract.function_app.azure_ml_benches import MODEL, Bench, EmulatorBench, MemoryBench, job_spec
from tests.support.azure_ml import WORKSPACE_ID, AzureMl
from tests.support.processes import REPOSITORY

TWO_RANKS = "echo rank $OMPI_COMM_WORLD_RANK began; echo rank $OMPI_COMM_WORLD_RANK ended"
LOGS_TO_MLFLOW = (
    "import mlflow; mlflow.start_run(); mlflow.log_param('lr', 0.1); mlflow.set_tag('a', 'b'); "
    "mlflow.log_metric('val_accuracy', 0.9, step=2); mlflow.log_metric('val_accuracy', 0.5, step=1); "
    "mlflow.log_metrics({'val/loss': 1, 'worst': float('nan')}); mlflow.log_text('words', 'notes/a.txt')"
)
BOTH = ["memory", pytest.param("emulator", marks=pytest.mark.azurite)]


@pytest.fixture(params=BOTH)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """The double or the real adapters."""
    if request.param == "memory":
        yield MemoryBench()
        return
    emulator: AzureMl = request.getfixturevalue("azure_ml")
    client: WorkspaceClient = request.getfixturevalue("workspace_client")
    yield EmulatorBench.of(emulator, client)


def registration(run_id: str, version: str = "202611201200000042") -> ModelRegistration:
    """A model made of a job's output."""
    return ModelRegistration(
        name=f"model-of-{run_id}",
        version=version,
        path=f"azureml://jobs/{run_id}/outputs/model",
        description="of the contract tests",
        tags={"landfall.run_id": run_id},
    )


def test_a_job_that_was_never_submitted_is_unknown(bench: Bench) -> None:
    """The result is None, not an error: the caller decides whether that is bad."""
    assert bench.jobs.status("landfall-unknown-a1") is None


def test_a_submitted_job_is_known_by_its_name_and_tags(bench: Bench) -> None:
    """The tags distinguish our job from another one of the same name."""
    spec = job_spec()
    bench.jobs.submit(spec)
    status = bench.jobs.status(spec.name)
    bench.jobs.cancel(spec.name)
    assert status is not None
    assert (spec.name, dict(spec.tags)) == (status.name, dict(status.tags))


def test_the_same_job_submitted_again_meets_itself(bench: Bench) -> None:
    """Repeating a submission is harmless, even when the job has ended meanwhile."""
    spec = job_spec("Completed")
    bench.jobs.submit(spec)
    bench.reach(spec.name, "Completed")
    assert "Completed" == bench.jobs.submit(spec).status


def test_another_job_under_a_taken_name_is_refused(bench: Bench) -> None:
    """A name stands for one spec; the error says so, and the request is not retried."""
    spec = job_spec()
    bench.jobs.submit(spec)
    other = job_spec("Completed", name=spec.name)
    with pytest.raises(SubmissionRefusedError, match="another job has this name") as refused:
        bench.jobs.submit(other)
    bench.jobs.cancel(spec.name)
    assert "400/JobPropertyImmutable" == refused.value.code


def test_a_job_for_a_compute_that_is_gone_is_refused_with_its_name(bench: Bench) -> None:
    """The service does not name the compute; its error codes decide the failure class."""
    if isinstance(bench.jobs, MemoryJobs):
        bench.jobs.deleted_computes.add("gone-cluster")
    with pytest.raises(SubmissionRefusedError, match="has no cluster gone-cluster") as refused:
        bench.jobs.submit(job_spec(compute="gone-cluster"))
    assert "400/UserError/BadArgument/UnknownTargetType" == refused.value.code


@pytest.mark.parametrize(
    ("member", "asset", "words"),
    [
        ("inputs", "data/landfall-files", "data asset landfall-files"),
        ("environment_id", "environments/landfall-own", "environment landfall-own"),
        ("code_id", "codes/landfall-training", "code asset landfall-training"),
    ],
)
def test_a_job_whose_files_are_not_published_is_refused_with_the_fix(
    bench: Bench, member: str, asset: str, words: str
) -> None:
    """The service has no job of that name afterwards."""
    asset = f"{WORKSPACE_ID}/{asset}/versions/0123456789abcdef"
    if isinstance(bench.jobs, MemoryJobs):
        bench.jobs.unpublished.add(asset)
    needs: dict[str, Any] = {member: {"files": {"type": "uri_folder", "uri": asset}} if member == "inputs" else asset}
    spec = job_spec(**needs)
    with pytest.raises(
        SubmissionRefusedError, match=rf"no version 0123456789abcdef of the {words}.* run landfall publish"
    ) as refused:
        bench.jobs.submit(spec)
    assert ("404/NotPublished", None) == (refused.value.code, bench.jobs.status(spec.name))


def test_the_assets_of_a_job_name_its_image(bench: Bench) -> None:
    """It is the image of the environment, as published."""
    found = bench.jobs.assets(job_spec())
    assert "/" in str(found.image)


def test_the_commit_that_was_published_with_the_code_is_known(bench: Bench, tmp_path: Path) -> None:
    """The client sends it and the service stores it; without a commit, the answer says why."""
    if not isinstance(bench, EmulatorBench):
        pytest.skip("publishes to the service")
    workspace = AzureMlWorkspace(bench.client.get())
    for name, commit in (("known", "2" * 40), ("unknown", None)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "train.py").write_text(name)
        assert workspace.ensure_code(name, "1", folder, commit=commit)
        found = bench.jobs.assets(job_spec(code_id=f"{WORKSPACE_ID}/codes/{name}/versions/1"))
        assert (commit, None if commit else NO_COMMIT) == (found.commit, found.why_no_commit)
    gone = bench.jobs.assets(job_spec(code_id=f"{WORKSPACE_ID}/codes/gone/versions/1"))
    assert (None, "the workspace does not have the code asset any more") == (gone.commit, gone.why_no_commit)


def test_a_canceled_job_ends_canceled(bench: Bench) -> None:
    """The request is enough; the job ends by itself."""
    spec = job_spec()
    bench.jobs.submit(spec)
    bench.jobs.cancel(spec.name)
    bench.reach(spec.name, "Canceled")
    status = bench.jobs.status(spec.name)
    assert "Canceled" == (status and status.status)


def test_canceling_a_job_that_has_ended_changes_nothing(bench: Bench) -> None:
    """The job had ended before the request."""
    spec = job_spec("Completed")
    bench.jobs.submit(spec)
    bench.reach(spec.name, "Completed")
    bench.jobs.cancel(spec.name)
    status = bench.jobs.status(spec.name)
    assert "Completed" == (status and status.status)


def test_canceling_an_unknown_job_is_refused(bench: Bench) -> None:
    """There is nothing to cancel, and retrying does not help."""
    with pytest.raises(SubmissionRefusedError, match="does not know it"):
        bench.jobs.cancel("landfall-unknown-a1")


def test_the_log_tail_is_the_end_and_no_more_than_asked_for(bench: Bench) -> None:
    """A log may have gigabytes; people need its last lines."""
    spec = job_spec("Completed")
    bench.jobs.submit(spec)
    bench.reach(spec.name, "Completed")
    tail = bench.jobs.log_tail(spec.name, max_bytes=9)
    assert tail is not None
    assert ("the end", True) == (tail.strip().rpartition("\n")[2], len(tail.encode()) <= 9)


def test_each_rank_has_a_log_that_is_read_in_parts(bench: Bench) -> None:
    """Parts start at any byte; after the end there is nothing, and a rank that wrote nothing has no log."""
    spec = job_spec("Completed", command=TWO_RANKS, processes_per_node=2)
    bench.jobs.submit(spec)
    bench.reach(spec.name, "Completed")
    if isinstance(bench.jobs, MemoryJobs):
        bench.jobs.logs |= {
            spec.name: "rank 0 began\nrank 0 ended\n",
            f"{spec.name}/1": "rank 1 began\nrank 1 ended\n",
        }
    for rank in (0, 1):
        whole = bench.jobs.log_part(spec.name, rank=rank, after=0, max_bytes=1000)
        assert (f"rank {rank} began\nrank {rank} ended\n".encode(), 0, 26) == (whole and astuple(whole))
        rest = bench.jobs.log_part(spec.name, rank=rank, after=13, max_bytes=6)
        assert (f"rank {rank}".encode(), 13, 26) == (rest and astuple(rest))
        beyond = bench.jobs.log_part(spec.name, rank=rank, after=999, max_bytes=6)
        assert (b"", 26, 26) == (beyond and astuple(beyond))
        tail = bench.jobs.log_part(spec.name, rank=rank, after=None, max_bytes=6)
        assert (b"ended\n", 20, 26) == (tail and astuple(tail))
    assert bench.jobs.log_part(spec.name, rank=2, after=0, max_bytes=6) is None
    assert bench.jobs.log_part("landfall-unknown-a1", rank=0, after=0, max_bytes=6) is None


def test_what_a_job_logs_to_mlflow_is_read_with_its_last_values(bench: Bench) -> None:
    """The real client needs no setting in the script; values that are not finite are left out."""
    spec = job_spec("Completed", command=f'python -c "{LOGS_TO_MLFLOW}"')
    bench.jobs.submit(spec)
    bench.reach(spec.name, "Completed")
    if isinstance(bench.jobs, MemoryJobs):
        logged = {"val_accuracy": 0.9, "val/loss": 1, "worst": float("nan")}
        bench.jobs.metrics[spec.name] = logged
    assert {"val_accuracy": 0.9, "val/loss": 1.0} == bench.jobs.logged_metrics(spec.name)


def test_a_job_that_logged_nothing_has_no_metrics(bench: Bench) -> None:
    """The same holds for a job that the service does not know."""
    spec = job_spec("Completed")
    bench.jobs.submit(spec)
    bench.reach(spec.name, "Completed")
    assert [{}, {}] == [bench.jobs.logged_metrics(name) for name in (spec.name, "landfall-unknown-a1")]


def test_a_failed_job_says_why(bench: Bench) -> None:
    """The service's message and the log are the starting points for people."""
    spec = job_spec("Failed")
    bench.jobs.submit(spec)
    bench.reach(spec.name, "Failed")
    status = bench.jobs.status(spec.name)
    assert status is not None
    assert ("Failed", True) == (status.status, bool(status.error))
    assert isinstance(bench, MemoryBench) or (status.ran_s or 0.0) > 0.0
    assert "about to fail" in (bench.jobs.log_tail(spec.name, max_bytes=4096) or "")


def test_a_model_version_registered_again_meets_itself(bench: Bench) -> None:
    """The version is explicit, so a repetition creates no second one."""
    spec = job_spec("Completed", outputs=MODEL)
    bench.jobs.submit(spec)
    bench.reach(spec.name, "Completed")
    made = registration(spec.name)
    for _ in range(2):
        bench.models.register(made)
    assert [made.version] == bench.versions(made.name)


def test_a_model_version_of_another_run_is_refused(bench: Bench) -> None:
    """The source of a model version never changes."""
    first, second = job_spec("Completed", outputs=MODEL), job_spec("Completed", outputs=MODEL)
    for spec in (first, second):
        bench.jobs.submit(spec)
        bench.reach(spec.name, "Completed")
    made = registration(first.name)
    bench.models.register(made)
    other = ModelRegistration(**{**vars(made), "path": registration(second.name).path})
    with pytest.raises(SubmissionRefusedError):
        bench.models.register(other)


def test_a_tag_of_a_model_version_is_set_and_removed_and_nothing_else_changes(bench: Bench) -> None:
    """Registering the version again keeps the tag; a version that does not exist is reported as not found."""
    spec = job_spec("Completed", outputs=MODEL)
    bench.jobs.submit(spec)
    bench.reach(spec.name, "Completed")
    made = registration(spec.name)
    bench.models.register(made)
    bench.models.tag(made.name, made.version, "landfall.current", "now")
    bench.models.register(made)
    tagged = bench.models.find(made.name, made.version)
    assert tagged is not None
    assert {**made.tags, "landfall.current": "now"} == tagged.tags
    assert tagged.path.endswith(f"jobs/{spec.name}/outputs/model")
    bench.models.tag(made.name, made.version, "landfall.current", None)
    bench.models.tag(made.name, made.version, "landfall.current", None)
    found = bench.models.find(made.name, made.version)
    assert found is not None
    assert (dict(made.tags), tagged.path) == (dict(found.tags), found.path)
    assert bench.models.find(made.name, "404") is None
    with pytest.raises(SubmissionRefusedError, match="the workspace has no such version"):
        bench.models.tag(made.name, "404", "landfall.current", "now")


def test_jobs_of_ours_are_listed_by_their_tag(bench: Bench) -> None:
    """The tags show whose they are; jobs of others are not listed."""
    spec, strange = job_spec("Completed"), job_spec("Completed", tags={"owner": "another team"})
    for each in (spec, strange):
        bench.jobs.submit(each)
    listed = {job.name: dict(job.tags) for job in bench.jobs.ours()}
    assert (dict(spec.tags), False) == (listed[spec.name], strange.name in listed)


def test_a_compute_is_there_or_not(bench: Bench) -> None:
    """A deleted cluster is an answer, not an error."""
    if isinstance(bench.jobs, MemoryJobs):
        bench.jobs.deleted_computes.add("gone-cluster")
    assert [True, False] == [bench.jobs.has_compute(name) for name in ("cluster", "gone-cluster")]


def test_the_snippet_of_the_page_on_the_registry_finds_the_current_version(bench: Bench) -> None:
    """It needs only azure-ai-ml, and finds the tagged version, the later one of two promotions, or none."""
    if not isinstance(bench, EmulatorBench):
        return  # the double has no client for others
    page = (REPOSITORY / "docs" / "registry.md").read_text(encoding="utf-8")
    [code] = [block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def current" in block]
    written: dict[str, Any] = {}
    exec(compile(code, "docs/registry.md", "exec"), written)  # noqa: S102 (this project's own page)
    spec = job_spec("Completed", outputs=MODEL)
    bench.jobs.submit(spec)
    bench.reach(spec.name, "Completed")
    first = registration(spec.name)
    second = ModelRegistration(**{**vars(first), "version": f"{first.version}1"})
    for made in (first, second):
        bench.models.register(made)
    client = bench.client.get()
    assert written["current"](client, first.name) is None
    bench.models.tag(second.name, second.version, "landfall.current", "2026-11-20T12:00:00.000000+00:00")
    assert second.version == written["current"](client, first.name).version
    bench.models.tag(first.name, first.version, "landfall.current", "2026-11-20T12:00:01.000000+00:00")
    assert first.version == written["current"](client, first.name).version


def test_clusters_are_seen_with_their_nodes_and_quotas_only_with_a_role(bench: Bench) -> None:
    """The app's identity has a role on the workspace, but quotas belong to the subscription."""
    found = bench.jobs.capacity()
    assert ((), ROLE_MISSING) == (found.quotas, found.refusal)
    if isinstance(bench, EmulatorBench):
        assert (4, True) == (found.clusters["cluster"].max_nodes, 0 <= found.clusters["cluster"].num_nodes <= 4)
