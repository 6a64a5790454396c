"""Planning: the same request under the same name, another one under another, and all ids and uris in full."""

from __future__ import annotations

import shlex
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from function_app.config.environments import OwnEnvironment
from function_app.config.own_files import OwnFile, OwnFiles
from function_app.config.pipelines import Pipeline
from function_app.domain.jobs import (
    SPEC_HASH_TAG,
    files_asset,
    plan_run,
    report_path,
    runs_own_script,
    spec_from_json,
    spec_to_json,
    with_expected_machines,
)
from function_app.domain.records import DatasetVersion, Generation
from shared.job_arguments import JobArguments, TrainingOptions
from shared.traces import place_of_run
from tests.support.world import VERSION, WORKSPACE, clusters, pipeline

GENERATION = Generation(
    dataset_version=VERSION,
    number=1,
    fingerprint="f" * 64,
    manifest_path="manifests/digits/v1/g1-ffffffffffff.json",
    num_shards=3,
    num_records=30,
    closed_at=datetime(2026, 11, 20, tzinfo=UTC),
)
STORE = "azureml://subscriptions/00000000-0000-0000-0000-000000000000/resourcegroups/landfall/workspaces/landfall"


def train(**changes: Any) -> Any:
    """The pipeline with members of its train section exchanged."""
    plain = pipeline()
    return plain.model_copy(update={"train": plain.train.model_copy(update=changes)})


def on_size(vm_size: str, processes: int, **changes: Any) -> Any:
    """The same, where its cluster has this size."""
    return train(**changes).on(clusters(vm_size=vm_size, processes_per_node=processes))


def test_the_same_request_has_the_same_name_and_spec() -> None:
    """They depend neither on the day nor on the instance."""
    first, second = (plan_run(pipeline(), GENERATION, WORKSPACE) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("changed_pipeline", "generation", "workspace"),
    [
        (pipeline(), replace(GENERATION, fingerprint="e" * 64), WORKSPACE),
        (pipeline(), replace(GENERATION, dataset_version=DatasetVersion(dataset="digits", version="v2")), WORKSPACE),
        (pipeline(), GENERATION, replace(WORKSPACE, code_id="another")),
        (pipeline(), GENERATION, replace(WORKSPACE, environment_id="another")),
        (train(num_nodes=4), GENERATION, WORKSPACE),
        (train(options=replace(pipeline().train.options, epochs=4)), GENERATION, WORKSPACE),
        (train(environment_variables={"A": "1"}), GENERATION, WORKSPACE),
        (on_size("Standard_NC24ads_A100_v4", 1), GENERATION, WORKSPACE),
    ],
)
def test_whatever_changes_the_training_changes_the_name(
    changed_pipeline: Any, generation: Generation, workspace: Any
) -> None:
    """What is trained on, and how."""
    plain = plan_run(pipeline(), GENERATION, WORKSPACE)
    assert plain.logical_run != plan_run(changed_pipeline, generation, workspace).logical_run


def test_what_does_not_concern_the_training_does_not_change_the_name() -> None:
    """Another number of the same content, another recipient, another gate."""
    plain = plan_run(pipeline(), GENERATION, WORKSPACE)
    other = plan_run(pipeline(notify=(), register_=None), replace(GENERATION, number=3), WORKSPACE)
    assert plain.run_id == other.run_id


def test_a_name_is_one_that_azure_ml_takes() -> None:
    """Letters, digits, - and _, at most 255."""
    version = DatasetVersion(dataset="d" * 63, version="2026.11.20_" + "v" * 53)
    run_id = plan_run(pipeline(), replace(GENERATION, dataset_version=version), WORKSPACE).run_id
    assert f"landfall-{'d' * 63}-2026-11-20_{'v' * 53}-" == run_id[: -len("0123456789ab-a1")]
    assert len(run_id) <= 255


def test_versions_that_differ_in_a_replaced_character_stay_apart() -> None:
    """The digest has the version as it is."""
    names = {
        plan_run(pipeline(), replace(GENERATION, dataset_version=replace(VERSION, version=v)), WORKSPACE).run_id
        for v in ("1.0", "1-0")
    }
    assert 2 == len(names)


def test_a_claimed_name_stands_whatever_the_plan_hashes_to() -> None:
    """A deployment between two deliveries changes the code id, and must not change the name."""
    plan = plan_run(
        pipeline(), GENERATION, replace(WORKSPACE, code_id="new"), logical_run="landfall-digits-v1-claimed"
    )
    assert ("landfall-digits-v1-claimed-a1", "new") == (plan.run_id, plan.spec.code_id)


def test_inputs_and_outputs_are_full_datastore_uris() -> None:
    """They mean the same from everywhere, and the checkpoints hang on the logical run."""
    plan = plan_run(pipeline(), GENERATION, WORKSPACE)
    runs = f"{STORE}/datastores/landfall_runs/paths/digits/v1/{plan.logical_run}"
    assert {
        "manifest": {
            "type": "uri_file",
            "uri": f"{STORE}/datastores/landfall_state/paths/{GENERATION.manifest_path}",
        },
        "data": {"type": "uri_folder", "uri": f"{STORE}/datastores/landfall_datasets/paths/digits/v1/"},
    } == plan.spec.inputs
    assert {
        "report": {"type": "uri_folder", "uri": f"{runs}/a1/report"},
        "model": {"type": "custom_model", "uri": f"{runs}/a1/model"},
        "checkpoints": {"type": "uri_folder", "uri": f"{runs}/checkpoints"},
    } == plan.spec.outputs
    assert f"digits/v1/{plan.logical_run}/a1/training_report.json".replace("a1/", "a1/report/") == report_path(
        plan.spec
    )


def test_the_command_reads_back_as_the_options() -> None:
    """Submitter and training speak through shared.job_arguments."""
    words = shlex.split(plan_run(pipeline(), GENERATION, WORKSPACE).spec.command)
    arguments = JobArguments.from_argv(words[3:])
    assert (["python", "-m", "training_job.train"], 3) == (words[:3], arguments.epochs)
    assert ("${{inputs.manifest}}", "${{outputs.model}}") == (arguments.manifest, arguments.model)


def test_a_script_of_the_users_is_run_as_a_file() -> None:
    """It has five paths and its own arguments; imports of `shared` are resolved from the root of the code."""
    spec = plan_run(train(script="scripts/mine.py", arguments=("--rate", "0.1")), GENERATION, WORKSPACE).spec
    command = (
        "python -m training_job.machines scripts/mine.py --data ${{inputs.data}} --manifest ${{inputs.manifest}} "
        "--output ${{outputs.model}} --checkpoint ${{outputs.checkpoints}} "
        "--report ${{outputs.report}}/training_report.json --rate 0.1 "
        "--pass-paths True --expected-world-size 2 --expected-nodes 2 --expected-device gpu"
    )
    assert (command, ".") == (spec.command, spec.environment_variables["PYTHONPATH"])
    other = with_expected_machines(command, world_size=8, vm_size="Standard_D4s_v5")
    assert other.endswith(" --pass-paths True --expected-world-size 8 --expected-nodes 2 --expected-device cpu")
    assert "PYTHONPATH" not in plan_run(pipeline(), GENERATION, WORKSPACE).spec.environment_variables


def test_a_pipelines_own_environment_is_part_of_the_job_and_of_its_name() -> None:
    """The digests of its content and of its base are used; the names of other pipelines do not change."""
    own = OwnEnvironment(conda_file='{"dependencies": ["a=1"]}')
    plain, placed = pipeline(), pipeline().within(own)
    plan = plan_run(placed, GENERATION, WORKSPACE)
    expected = WORKSPACE.environment_id.replace(
        "landfall-training/versions/1", f"landfall-own/versions/{own.version('1')}"
    )
    assert (expected, WORKSPACE.environment_id) == (
        plan.spec.environment_id,
        plan_run(plain, GENERATION, WORKSPACE).spec.environment_id,
    )
    changed = plan_run(plain.within(OwnEnvironment(conda_file="{}")), GENERATION, WORKSPACE)
    assert 3 == len({plan.logical_run, changed.logical_run, plan_run(plain, GENERATION, WORKSPACE).logical_run})


def test_a_pipelines_files_are_an_input_of_the_job_and_part_of_its_name() -> None:
    """Exactly the version that was published; a script gets their folder, and other pipelines keep their names."""
    plain = train(script="scripts/mine.py", arguments=("--rate", "0.1"))
    placed = plain.within(files=brought("a"))
    plan = plan_run(placed, GENERATION, WORKSPACE)
    root = WORKSPACE.environment_id.partition("/environments/")[0]
    uri = f"{root}/data/landfall-files/versions/{brought('a').version}"
    assert {"type": "uri_folder", "uri": uri} == plan.spec.inputs["files"]
    assert " --rate 0.1 --landfall-files ${{inputs.files}} --pass-paths True " in plan.spec.command
    assert str(files_asset(spec_from_json(spec_to_json(plan.spec)))).endswith(f"/versions/{brought('a').version}")
    names = {plan_run(one, GENERATION, WORKSPACE).logical_run for one in (plain, plain.within(files=brought("b")))}
    assert 3 == len({plan.logical_run, *names})
    assert "files" not in plan_run(plain, GENERATION, WORKSPACE).spec.inputs


def test_options_of_landfalls_training_name_the_files_that_a_pipeline_brings() -> None:
    """They become their paths in the job; any other path does not change."""
    options = TrainingOptions(pretrained_weights="weights.keras", model_module="scripts/net.py")
    plan = plan_run(train(options=options).within(files=brought("a")), GENERATION, WORKSPACE)
    assert "--pretrained-weights ${{inputs.files}}/weights.keras " in plan.spec.command
    assert "--model-module scripts/net.py " in plan.spec.command


def brought(content: str) -> OwnFiles:
    """One file of weights."""
    return OwnFiles(files=(OwnFile(name="weights.keras", path=Path("/x/weights.keras"), digest=content),))


@pytest.mark.parametrize(("distribution", "processes"), [("pytorch", 4), ("tensorflow", 1)])
def test_other_launchers_are_part_of_the_job_and_of_its_name(distribution: Any, processes: int) -> None:
    """PyTorch has a process for each GPU, TensorFlow a worker for each node; the ledger's row keeps which."""
    own = {"script": "scripts/mine.py", "num_nodes": 2}
    plain = plan_run(on_size("Standard_NC96ads_A100_v4", 4, **own), GENERATION, WORKSPACE)
    plan = plan_run(on_size("Standard_NC96ads_A100_v4", 4, **own, distribution=distribution), GENERATION, WORKSPACE)
    assert (distribution, processes) == (plan.spec.distribution, plan.spec.processes_per_node)
    assert f"--expected-world-size {2 * processes} --expected-nodes 2" in plan.spec.command
    assert ("mpi", False) == (plain.spec.distribution, "distribution" in spec_to_json(plain.spec))
    assert plan.spec == spec_from_json(spec_to_json(plan.spec))
    assert plain.logical_run != plan.logical_run


@pytest.mark.parametrize(
    ("placed", "expected"),
    [
        (on_size("Standard_NC48ads_A100_v4", 2, num_nodes=4), (8, 4, "gpu")),
        (on_size("Standard_D4s_v5", 1, num_nodes=1), (1, 1, "cpu")),
    ],
)
def test_the_command_states_what_is_paid_for(placed: Pipeline, expected: tuple[int, int, str]) -> None:
    """The number of ranks and of nodes, and a GPU where the size has any; the job's name does not depend on it."""
    command = plan_run(placed, GENERATION, WORKSPACE).spec.command
    stated = JobArguments.from_argv(shlex.split(command)[3:])
    assert expected == (stated.expected_world_size, stated.expected_nodes, stated.expected_device)


@pytest.mark.parametrize(
    ("command", "is_own"),
    [
        ("python -m training_job.train --model-name small_cnn", False),
        ("python -m training_job.machines scripts/mine.py --model-name small_cnn", True),
        ("python scripts/mine.py --model-name small_cnn", True),
        ("python -m training_job.train --model-module scripts/model.py", False),
    ],
)
def test_a_users_script_is_recognised_in_the_jobs_of_every_deployment(command: str, *, is_own: bool) -> None:
    """The gate asks for it after the job's end, which may be after the next deployment."""
    assert is_own == runs_own_script(command)


def test_the_environment_suits_the_size_and_the_pipeline_has_the_last_word() -> None:
    """Without InfiniBand, NCCL's use of it is switched off; with it, NCCL's settings are left alone."""
    plain = plan_run(train(environment_variables={"NCCL_SOCKET_IFNAME": "eth1"}), GENERATION, WORKSPACE).spec
    rdma = plan_run(on_size("Standard_ND96asr_v4", 8), GENERATION, WORKSPACE).spec
    seen = [plain.environment_variables.get(n) for n in ("NCCL_IB_DISABLE", "NCCL_SOCKET_IFNAME")]
    assert (["1", "eth1"], None) == (seen, rdma.environment_variables.get("NCCL_IB_DISABLE"))
    assert "1" == rdma.environment_variables["OMPI_MCA_mpi_yield_when_idle"]


def test_the_tags_say_where_the_job_comes_from() -> None:
    """Lineage, and the hash by which a repetition is recognised."""
    plan = plan_run(pipeline(), GENERATION, WORKSPACE)
    assert {
        "landfall.dataset_version": "digits/v1",
        "landfall.fingerprint": GENERATION.fingerprint,
        "landfall.run_id": plan.run_id,
        "landfall.traceparent": place_of_run("digits/v1", plan.run_id).traceparent,
        "landfall.pipeline": "digits",
        SPEC_HASH_TAG: plan.spec_hash,
    } == plan.spec.tags


def test_a_spec_survives_the_ledger() -> None:
    """A repetition sends what was first submitted."""
    spec = plan_run(pipeline(), GENERATION, WORKSPACE).spec
    assert spec == spec_from_json(spec_to_json(spec))
