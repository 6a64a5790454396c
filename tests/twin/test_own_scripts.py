"""Users' scripts on the twin: a correct one trains and registers, a wrong one is refused unless forced."""

from __future__ import annotations

import pytest
from azure.storage.blob import BlobServiceClient

from cli.demo.following import TOPIC, WEBHOOK
from cli.remote.api_client import ApiError
from local_azure.processes import run as run_program
from local_azure.processes import wait_until
from local_azure.twin.parts import publishing
from tests.support.terminal import landfall
from tests.support.twin import SETTLED, WITHIN_S, TwinUnderTest
from tests.twin.own_pipelines import (
    AVERAGING,
    CARELESS,
    OWN_SCRIPTS,
    SOUND,
    write_late_pipeline,
    write_pretrained_pipeline,
)
from tests.twin.shards import one_hot_shard, whole_version

pytestmark = pytest.mark.twin

LINE = CARELESS[: CARELESS.index("tape.gradient")].count("\n") + 1
FINDING = f"scripts/careless.py:{LINE}: tape_not_distributed"


@pytest.mark.slow
def test_a_sound_script_runs_to_a_registered_model(twin: TwinUnderTest) -> None:
    """Two real ranks write a report that passes the gate, and a model is registered."""
    twin.upload("sound/v1", whole_version())
    run = twin.await_settled("sound/v1")
    assert ("registered", 2, 1) == (run["state"], run["world_size"], len(twin.models(run["run_id"]))), run


def test_a_bad_script_is_refused_with_file_line_and_rule(twin: TwinUnderTest) -> None:
    """The run after the last upload fails, and a request is refused; both name the finding."""
    assert AVERAGING in SOUND
    twin.upload("careless/v1", whole_version())
    run = twin.await_settled("careless/v1")
    assert ("failed", "user_code", True) == (run["state"], run["failure_class"], FINDING in run["reason"]), run
    with pytest.raises(ApiError, match="tape_not_distributed") as refused:
        twin.api.submit("careless", "v1", {})
    assert (422, "script_refused") == (refused.value.status, refused.value.code)


@pytest.mark.slow
def test_a_bad_script_runs_where_it_is_forced(twin: TwinUnderTest) -> None:
    """Each rank learns only its half of the labels, and the gate refuses the model; the history has the finding."""
    twin.upload("careless/forced", whole_version())
    twin.await_settled("careless/forced")
    forced = twin.api.submit("careless", "forced", {}, force=True)
    twin.await_quiet()
    ended = twin.await_settled("careless/forced")
    history = twin.api.get(f"/api/why/{forced['run_id']}")
    assert (forced["run_id"], "not_registered", True) == (ended["run_id"], ended["state"], FINDING in str(history))


@pytest.mark.slow
def test_a_sweep_over_an_argument_registers_its_best_run_alone(twin: TwinUnderTest) -> None:
    """The runs are sequential: a good one, one that fails, one that a person cancels, and the best one."""
    twin.upload("swept/v1", whole_version())
    twin.await_settled("swept/v1")  # 0.1 does not meet the requirement
    asked = {"force": True, "max_node_hours": 2, "grid": {"accuracy": [0.96, 1.5, 0.5, 0.98]}}
    path = f"/api/sweeps/{twin.api.submit_sweep('swept', 'v1', asked)['sweep_id']}"
    canceled = wait_until(
        lambda: next((run for run in twin.api.get(path)["runs"][2:] if run["state"] == "running"), None),
        what="the third run to train",
        timeout_s=WITHIN_S,
    )
    twin.api.cancel(canceled["run_id"])
    ended = wait_until(
        lambda: sweep if (sweep := twin.api.get(path))["state"] == "ended" else None,
        what="the sweep to end",
        timeout_s=WITHIN_S,
    )
    twin.await_quiet()
    sweep = twin.api.get(path)
    states = [run["state"] for run in sweep["runs"]]
    assert ["not_registered", "failed", "canceled", "registered"] == states, sweep
    assert (ended["best"], {"val_accuracy": 0.98}) == (sweep["runs"][3]["run_id"], sweep["runs"][3]["metrics"])
    assert [0, 0, 0, 1] == [len(twin.models(run["run_id"])) for run in sweep["runs"]]
    outcomes = [(TOPIC, "sweep_ended"), (WEBHOOK, "sweep_ended")]
    assert outcomes == sorted(twin.notifications(sweep["sweep_id"])), sweep


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["workers", "sockets", "deepspeed"])
def test_other_launchers_run_a_script_to_a_registered_model(twin: TwinUnderTest, dataset: str) -> None:
    """The workers of TensorFlow, the ranks of PyTorch and those of DeepSpeed's launcher connect to each other.

    Every one of them writes, and the model is the root's alone.
    """
    twin.upload(f"{dataset}/v1", whole_version())
    run = twin.await_settled(f"{dataset}/v1")
    assert ("registered", 2, 1) == (run["state"], run["world_size"], len(twin.models(run["run_id"]))), run
    with BlobServiceClient.from_connection_string(twin.twin.places.host_connection) as host:
        outputs = list(host.get_container_client("runs").list_blob_names(name_starts_with=f"{dataset}/v1/"))
    written = [path.rpartition("/model/")[2].partition(".")[0] for path in outputs if "/model/written-by-" in path]
    assert ["written-by-0"] == written


@pytest.mark.slow
def test_a_rank_that_dies_ends_the_others_under_any_launcher(twin: TwinUnderTest) -> None:
    """The root waits for the dead rank; the run fails with that rank's error and failure class."""
    twin.upload("widowed/v1", whole_version())
    run = twin.await_settled("widowed/v1")
    assert ("failed", "user_code", True) == (run["state"], run["failure_class"], "rank 1 is dead" in str(run)), run


@pytest.mark.slow
def test_packages_that_do_not_install_are_a_failure_of_their_own(twin: TwinUnderTest) -> None:
    """No rank is started; the reason names the package."""
    twin.upload("unpackable/v1", whole_version())
    run = twin.await_settled("unpackable/v1")
    assert ("failed", "packages") == (run["state"], run["failure_class"]), run
    assert "landfall-nosuch==1.0" in run["reason"], run
    fix = "correct the packages of train.environment and run landfall publish, then: landfall submit unpackable/v1"
    assert fix in str(twin.api.get(f"/api/why/{run['run_id']}"))


@pytest.mark.slow
def test_a_script_that_reads_a_file_of_its_pipeline_runs_to_a_registered_model(twin: TwinUnderTest) -> None:
    """`landfall publish` uploads the file; the script needs it, and the spec names its exact version.

    Its metrics are those of its MLflow run, at the address that every job has in its variables.
    """
    twin.upload("reading/v1", whole_version())
    run = twin.await_settled("reading/v1")
    assert ("registered", 2, 1) == (run["state"], run["world_size"], len(twin.models(run["run_id"]))), run
    with BlobServiceClient.from_connection_string(twin.twin.places.host_connection) as host:
        files = list(host.get_container_client("azureml").list_blob_names(name_starts_with="landfall-files/"))
    assert ["settings/steps.txt"] == [path.split("/", 2)[2] for path in files]
    assert "'metrics_from': 'the MLflow run'" in str(twin.api.get(f"/api/why/{run['run_id']}"))


def test_files_that_are_not_published_are_refused_until_they_are(
    twin: TwinUnderTest, capsys: pytest.CaptureFixture[str]
) -> None:
    """The request is refused before nodes start, with the missing version and the command; afterwards it trains."""
    write_late_pipeline(twin.twin.options.pipelines)
    twin.upload("late/v1", whole_version())
    refused = twin.await_settled("late/v1")
    assert ("failed", "configuration", None) == (refused["state"], refused["failure_class"], refused["submitted_at"])
    history = str(twin.api.get(f"/api/why/{refused['run_id']}"))
    assert "of the data asset landfall-files" in refused["reason"], refused
    assert ("run landfall publish" in refused["reason"], "landfall submit late/v1" in history) == (True, True), (
        history
    )
    run_program(publishing(twin.twin.places, twin.twin.options))
    key = ("--url", twin.twin.places.functions_url, "--key", twin.twin.places.secrets.function_key)
    status, said, problem = landfall(capsys, "submit", "late/v1", *key)
    assert (0, "") == (status, problem)
    run_id = next(word.strip(":,.") for word in said.split() if word.startswith("landfall-"))
    ended = wait_until(
        lambda: found if (found := twin.api.run(run_id))["state"] in SETTLED else None,
        what=f"{run_id} to end, which was announced so: {said}",
        timeout_s=WITHIN_S,
    )
    assert "registered" == ended["state"], ended


@pytest.mark.slow
def test_brought_weights_and_a_brought_model_are_what_is_trained(twin: TwinUnderTest) -> None:
    """The learning rate is nearly 0, so the labels can only come from the weights in the file."""
    write_pretrained_pipeline(twin.twin.options.pipelines, twin.twin.options.training_python / "bin" / "python")
    run_program(publishing(twin.twin.places, twin.twin.options))
    twin.upload("pretrained/v1", whole_version(one_hot_shard))
    run = twin.await_settled("pretrained/v1")
    assert ("registered", 2, 1.0) == (run["state"], run["world_size"], run["metrics"].get("val_accuracy")), run
    assert 1 == len(twin.models(run["run_id"]))


@pytest.mark.slow
def test_a_script_that_only_prints_its_metrics_runs_to_a_registered_model(twin: TwinUnderTest) -> None:
    """Each log and the run say where the rank ran; the history has the metrics that were judged."""
    twin.upload("printing/v1", whole_version())
    run = twin.await_settled("printing/v1")
    assert ("registered", 2, 1) == (run["state"], run["world_size"], len(twin.models(run["run_id"]))), run
    assert "the log of rank 0" in str(twin.api.get(f"/api/why/{run['run_id']}"))
    for rank in (0, 1):
        log = twin.api.get(f"/api/runs/{run['run_id']}/logs", rank=rank)
        assert (True, rank, rank == 0) == (log["has_ended"], log["place"]["rank"], "val_accuracy=" in log["log_text"])
    ran = twin.api.get(f"/api/runs/{run['run_id']}/ranks")
    assert [(0, 0), (1, 1)] == [(place["rank"], place["node"]) for place in ran["places"]], ran
    assert (2, None) == (len({place["host"] for place in ran["places"]}), ran["problem"]), ran


def test_a_script_for_keras_2_is_refused_on_keras_3(twin: TwinUnderTest, capsys: pytest.CaptureFixture[str]) -> None:
    """Keras 3 would not average its gradients; the refusal on the command line says why, and what to write."""
    twin.upload("keras3/v1", whole_version())
    run = twin.await_settled("keras3/v1")
    assert ("failed", "user_code", True) == (
        run["state"],
        run["failure_class"],
        "keras3_incompatible" in run["reason"],
    )
    key = ("--url", twin.twin.places.functions_url, "--key", twin.twin.places.secrets.function_key)
    status, _, refusal = landfall(capsys, "submit", "keras3/v1", *key)
    assert (1, True, True) == (status, "keras3_incompatible" in refusal, "`landfall lint` explains" in refusal)
    status, explained, _ = landfall(capsys, "lint", OWN_SCRIPTS / "keras2_fit.py")
    assert (1, True) == (status, "TF_USE_LEGACY_KERAS" in explained), explained


@pytest.mark.slow
def test_a_script_for_keras_2_runs_to_a_registered_model_where_its_pipeline_selects_keras_2(
    twin: TwinUnderTest,
) -> None:
    """The same script trains with the variable that the refusal names."""
    twin.upload("keras2/v1", whole_version())
    run = twin.await_settled("keras2/v1")
    assert ("registered", 2, 1) == (run["state"], run["world_size"], len(twin.models(run["run_id"]))), run


@pytest.mark.slow
def test_a_script_for_tensorflow_1_fails_with_what_it_needs(twin: TwinUnderTest) -> None:
    """The lint does not analyse such scripts; no hold is put on the data."""
    twin.upload("estimator/v1", whole_version())
    run = twin.await_settled("estimator/v1")
    history = str(twin.api.get(f"/api/why/{run['run_id']}"))
    assert ("failed", "packages", True) == (run["state"], run["failure_class"], "has no attribute" in history), run
    assert "use an image with the version of TensorFlow that the script was written for" in history
    assert twin.api.dataset_version("estimator", "v1")["hold"] is None
