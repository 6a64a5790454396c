"""`landfall import-batchai`: what a job of Batch AI becomes, and what is said about the rest."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.importing.batchai_job import ImportedJob, read_job
from cli.main import landfall
from function_app.config.pipeline_files import load_pipeline
from function_app.config.pipelines import Pipeline
from tests.support.processes import REPOSITORY

ROOT = "$AZ_BATCHAI_JOB_MOUNT_ROOT"
HOROVOD = {"pythonScriptFilePath": f"{ROOT}/scripts/train_mnist.py", "processCount": 8}
INTEL_MPI = (
    "source /opt/intel/compilers_and_libraries_2017/linux/mpi/intel64/bin/mpivars.sh; mpirun -n 8 -ppn 4 "
    "-hosts $AZ_BATCH_HOST_LIST -genv I_MPI_FABRICS=dapl -env NCCL_DEBUG INFO -genv I_MPI_DEBUG 5 "
    "python -u $AZ_BATCHAI_INPUT_SCRIPTS/train.py --epochs 90 --data $AZ_BATCHAI_INPUT_DATA "
    "--out=$AZ_BATCHAI_OUTPUT_MODEL"
)


def written(folder: Path, properties: Mapping[str, Any], *, is_wrapped: bool = True) -> Path:
    """Write a job beside a folder of pipelines and return its path."""
    folder.joinpath("pipelines", "scripts").mkdir(parents=True, exist_ok=True)
    shutil.copy(REPOSITORY / "pipelines" / "clusters.yaml", folder / "pipelines")
    path = folder / "My job.json"
    path.write_text(json.dumps({"$schema": "x", "properties": properties} if is_wrapped else properties))
    return path


def run(*arguments: str | Path) -> tuple[int, str]:
    """Run the command; return its exit status and what it prints."""
    ended = CliRunner().invoke(landfall, ["import-batchai", *map(str, arguments)], prog_name="landfall")
    return ended.exit_code, ended.output


def imported(folder: Path, properties: Mapping[str, Any], *options: str) -> tuple[Pipeline, dict[str, Any]]:
    """Import a job and put its script where the command says; return the checked pipeline and the JSON."""
    file = folder / "pipelines" / "made.yaml"
    file.unlink(missing_ok=True)
    status, out = run(written(folder, properties), "--to", file, "--json", *options)
    assert 0 == status, out
    report = json.loads(out)
    Path(report["script"]["copy_to"]).write_text("print('trained')\n")
    checked = CliRunner().invoke(landfall, ["check", str(file)], prog_name="landfall")
    assert 0 == checked.exit_code, checked.output
    return load_pipeline(file), report


def not_mapped(report: dict[str, Any]) -> dict[str, str]:
    """Return what to do instead, by member and text."""
    return {f"{each['member']}: {each['what']}": each["instead"] for each in report["not_mapped"]}


def test_a_horovod_job_becomes_a_pipeline_that_can_be_checked(tmp_path: Path) -> None:
    """Nodes, processes, script, arguments, variables, time limit and shared memory; the rest is listed."""
    properties = {
        "nodeCount": 2,
        "horovodSettings": HOROVOD | {"commandLineArgs": "--epochs 3 --name 'a b' --data=$AZ_BATCHAI_INPUT_SET"},
        "environmentVariables": [
            {"name": "NCCL_DEBUG", "value": "INFO"},
            {"name": "X", "value": "$AZ_BATCHAI_JOB_ID"},
        ],
        "secrets": [{"name": "KEY", "value": "hunter2"}],
        "constraints": {"maxWallClockTime": "PT1H30M"},
        "containerSettings": {
            "shmSize": "32G",
            "imageSourceRegistry": {
                "serverUrl": "https://mine.azurecr.io/",
                "image": "horovod:1",
                "credentials": {"username": "me", "password": "hunter2"},
            },
        },
        "jobPreparation": {"commandLine": "apt update; pip install horovod==0.13.0 keras && bash prepare.sh"},
        "inputDirectories": [{"id": "SET", "path": f"{ROOT}/data"}],
        "outputDirectories": [{"id": "MODEL", "pathPrefix": f"{ROOT}/logs", "pathSuffix": "m"}],
        "stdOutErrPathPrefix": f"{ROOT}/logs",
        "mountVolumes": {"azureBlobFileSystems": [{"containerName": "data", "relativeMountPath": "data"}]},
        "schedulingPriority": "low",
        "cluster": {"id": "/subscriptions/x"},
        "frobnicate": 1,
    }
    pipeline, report = imported(tmp_path, properties, "--cluster", "landfall-gpu-rdma", "--dataset", "digits2")
    train = pipeline.train
    assert ("digits2", 2, 5400, "32g", False) == (
        pipeline.dataset,
        train.num_nodes,
        train.timeout_s,
        train.shm_size,
        train.pass_paths,
    )
    assert ("scripts/train_mnist.py", ("--epochs", "3", "--name", "a b")) == (train.script, train.arguments)
    assert {"NCCL_DEBUG": "INFO"} == dict(train.environment_variables)
    assert (2, 8) == (report["num_nodes"], report["num_processes"])
    left = not_mapped(report)
    assert (
        'os.environ["LANDFALL_DATA"], rather than from --data.'
        in left["horovodSettings: --data=$AZ_BATCHAI_INPUT_SET"]
    )
    assert "train.environment" in left["containerSettings.imageSourceRegistry: https://mine.azurecr.io/horovod:1"]
    assert "{requirements: environments" in left["jobPreparation.commandLine: pip install horovod==0.13.0 keras"]
    assert "Landfall does not know this member." == left["frobnicate: 1"]
    assert {
        *("environmentVariables", "secrets", "containerSettings.imageSourceRegistry.credentials", "cluster"),
        *("jobPreparation.commandLine", "inputDirectories", "outputDirectories", "stdOutErrPathPrefix"),
        *("mountVolumes.azureBlobFileSystems", "schedulingPriority", "frobnicate", "horovodSettings"),
        "containerSettings.imageSourceRegistry",
    } == {each["member"] for each in report["not_mapped"]}
    assert "hunter2" not in json.dumps(report) + (tmp_path / "pipelines" / "made.yaml").read_text()


def test_a_command_line_of_intel_mpi_is_understood(tmp_path: Path) -> None:
    """Processes, variables and the script are taken over; hosts, fabrics and paths of Batch AI are not."""
    pipeline, report = imported(tmp_path, {"nodeCount": 2, "customToolkitSettings": {"commandLine": INTEL_MPI}})
    assert ("scripts/train.py", ("--epochs", "90"), 8) == (
        pipeline.train.script,
        pipeline.train.arguments,
        report["num_processes"],
    )
    assert {"NCCL_DEBUG": "INFO"} == dict(pipeline.train.environment_variables)
    left = not_mapped(report)
    assert "Open MPI" in left["customToolkitSettings.commandLine: I_MPI_DEBUG=5"]
    assert 'LANDFALL_DATA"], rather than from --data.' in left["customToolkitSettings: --data $AZ_BATCHAI_INPUT_DATA"]
    assert "LANDFALL_OUTPUT" in left["customToolkitSettings: --out=$AZ_BATCHAI_OUTPUT_MODEL"]
    assert any("-hosts" in what and "hosts and network" in instead for what, instead in left.items())
    assert any("mpivars.sh" in what for what in left)


@pytest.mark.parametrize(
    ("command", "processes", "arguments"),
    [
        ("mpirun -ppn 4 python a.py", 8, []),
        ("mpiexec.hydra -np 6 --bind-to none python3 a.py -x 1", 6, ["-x", "1"]),
        ("mpirun -np $AZ_BATCHAI_WORKERS -x A=b -x PATH python a.py", 2, []),
        ("python a.py --lr=0.1 -v", 1, ["--lr=0.1", "-v"]),
        ("cd x && ./a.py `pwd` $HOME/y z", 1, ["z"]),
        ("time mpirun -np 4 python -W ignore a.py 2 > log.txt 2>&1", 4, ["2"]),
        ("bash -lc 'source activate py36; mpirun -n 4 python a.py --n 1 &>>x'", 4, ["--n", "1"]),
        ("mpirun -n 4 -bootstrap ssh sh -c 'cd x && python a.py --n=1'", 4, ["--n=1"]),
        ("# a comment\nA=b python a.py \\\n  --n 1 | tee log.txt", 1, ["--n", "1"]),
        ("horovodrun -np 4 -H a:2,b:2 python a.py", 4, []),
    ],
)
def test_other_command_lines(command: str, processes: int, arguments: list[str]) -> None:
    """Both spellings of the options, no MPI, and syntax that only a shell understands."""
    job = job_of({"nodeCount": 2, "customToolkitSettings": {"commandLine": command}})
    assert (processes, arguments) == (job.num_processes, job.arguments)


def test_variables_of_a_command_line_are_taken_over_wherever_they_stand() -> None:
    """Exported before, in front of the command, behind `env`, and set by MPI; what is not taken over is listed."""
    line = "export A=1 B=2; set -e; env C=3 mpirun -n 2 -genv D 4 -x E=5 -print-rank-map python a.py > $OUT 2> err"
    job = job_of({"nodeCount": 2, "customToolkitSettings": {"commandLine": f"F=6; {line}"}})
    assert dict(zip("ABCDEF", "123456", strict=True)) == dict(sorted(job.environment.items()))
    left = ["set -e", "-print-rank-map", "> $OUT 2> err"]
    assert sorted(left) == sorted(each.what for each in job.not_mapped)


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("$AZ_BATCHAI_TASK_INDEX", "hvd.rank()"),
        ("$AZ_BATCHAI_PYTORCH_INIT_METHOD", "env://"),
        ("$AZ_BATCH_HOST_LIST", "find each other without it"),
        ("${AZ_BATCHAI_JOB_TEMP}/x", "with tempfile"),
        ("$AZ_BATCHAI_SHARED_JOB_TEMP", "LANDFALL_CHECKPOINT"),
        ("$AZ_BATCHAI_INPUT_MODEL/inception_v3.ckpt", "in train.files"),
        ("$AZ_BATCHAI_JOB_MOUNT_ROOT/data", "LANDFALL_DATA"),
    ],
)
def test_each_variable_of_the_service_has_what_stands_for_it(argument: str, words: str) -> None:
    """The line about the argument, whose flag is removed, names the replacement."""
    job = job_of({"horovodSettings": HOROVOD | {"commandLineArgs": f"--x {argument} --y 1"}})
    assert (["--y", "1"], [True]) == (job.arguments, [words in each.instead for each in job.not_mapped])


def test_tensorflow_in_one_process_is_imported(tmp_path: Path) -> None:
    """Keras ran in this way; its arguments were those of the master."""
    settings = {"pythonScriptFilePath": "$AZ_BATCHAI_INPUT_CODE/mnist.py", "masterCommandLineArgs": "--epochs 2"}
    inputs = [{"id": "CODE", "path": f"{ROOT}/code"}, {"id": "SET", "path": f"{ROOT}/data"}]
    job = {"nodeCount": 1, "tensorFlowSettings": settings, "inputDirectories": inputs}
    pipeline, report = imported(tmp_path, job)
    assert (("--epochs", "2"), 1) == (pipeline.train.arguments, report["num_processes"])
    left = not_mapped(report)
    assert "horovod_not_used" in left["tensorFlowSettings: TensorFlow in one process"]
    assert "to scripts/" in left[f"inputDirectories: CODE: {ROOT}/code"]
    assert "landfall upload" in left[f"inputDirectories: SET: {ROOT}/data"]


def job_of(properties: Mapping[str, Any]) -> ImportedJob:
    """Read a job."""
    return read_job(json.dumps({"properties": properties}).encode(), "job.json")


def test_each_process_of_custom_mpi_runs_the_command() -> None:
    """The service itself counted the processes: one on each node, unless stated."""
    settings = {"commandLine": "python train.py --epochs 1"}
    assert 3 == job_of({"nodeCount": 3, "customMpiSettings": settings}).num_processes
    assert 6 == job_of({"nodeCount": 3, "customMpiSettings": settings | {"processCount": 6}}).num_processes


@pytest.mark.parametrize(
    ("stated", "seconds", "is_listed"),
    [("7.00:00:00", 604800, False), ("01:30:00", 5400, False), ("P1DT1S", 86401, False), ("PT5S", 60, True),
     ("P99D", 1814400, True), ("soon", 604800, True), ("P" + "9" * 9999 + "D", 604800, True)],
)  # fmt: skip
def test_time_limits(stated: str, seconds: int, is_listed: bool) -> None:  # noqa: FBT001
    """Both spellings are read; a value that a pipeline cannot have is changed and listed."""
    job = job_of({"horovodSettings": HOROVOD, "constraints": {"maxWallClockTime": stated}})
    assert (seconds, is_listed) == (job.timeout_s, any("maxWallClockTime" in n.member for n in job.not_mapped))


def test_a_flat_job_of_the_old_command_line_is_read(tmp_path: Path) -> None:
    """`az batchai job show` printed the properties without their envelope, with null for what is not set."""
    path = written(tmp_path, {"nodeCount": 1, "horovodSettings": HOROVOD, "cntkSettings": None}, is_wrapped=False)
    status, out = run(path, "--to", tmp_path / "pipelines" / "x.yaml")
    assert (0, True) == (status, "8 processes on 1 node" in out)
    assert f"Next: copy {ROOT}/scripts/train_mnist.py to {tmp_path}/pipelines/scripts/train_mnist.py" in out
    text = (tmp_path / "pipelines" / "x.yaml").read_text()
    assert 'pipeline: "my-job"' in text
    assert "CHECK: the job had 8 processes on 1 node; this cluster has 1 on each node" in text


def test_a_file_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    """No folder is created either."""
    path = written(tmp_path, {"horovodSettings": HOROVOD})
    file = tmp_path / "pipelines" / "x.yaml"
    file.write_text("mine")
    status, out = run(path, "--to", file)
    assert (1, True, "mine") == (status, "x.yaml: exists already. Remove it" in out, file.read_text())
    assert "there is no such folder" in run(path, "--to", tmp_path / "absent" / "x.yaml")[1]
    assert (
        "nope is not in clusters.yaml" in run(path, "--to", tmp_path / "pipelines" / "y.yaml", "--cluster", "nope")[1]
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[", "is not JSON"),
        ("[1]", "properties is not a JSON object"),
        ("[" * 99999, "nested too deeply"),
        (" " * (1 << 20) + "{}", "is larger than 1 MiB"),
        ('{"properties": {}}', "has no settings of a tool kit, such as horovodSettings"),
        ('{"horovodSettings": {}, "customMpiSettings": {}}', "has horovodSettings and customMpiSettings"),
        ('{"cntkSettings": {}}', "Convert the script to Horovod first"),
        (
            '{"tensorFlowSettings": {"parameterServerCount": 1, "workerCount": 2}}',
            "2 workers and 1 parameter servers",
        ),
        ('{"nodeCount": 2, "tensorFlowSettings": {"pythonScriptFilePath": "a.py"}}', "Convert the script to Horovod"),
        ('{"customMpiSettings": {"commandLine": "mpirun -n 1 python a.py : -n 2 python a.py"}}', "at once, with ':'"),
        ('{"customMpiSettings": {"commandLine": "mpirun -n 0 python a.py"}}', "not a number from 1 to 10000"),
        (
            '{"customMpiSettings": {"commandLine": "bash -c \'bash -c \\"python a.py; python b.py\\"\'"}}',
            "more than one",
        ),
        ('{"horovodSettings": {}}', "names no Python script"),
        ('{"horovodSettings": [1]}', "horovodSettings is not a JSON object"),
        ('{"nodeCount": "2", "horovodSettings": {}}', "not a number from 1 to 10000. Correct it first."),
        ('{"customMpiSettings": {"commandLine": "./run.sh"}}', "runs no Python script (.py)"),
        ('{"customMpiSettings": {"commandLine": "python < a.py"}}', "runs no Python script (.py)"),
        ('{"customMpiSettings": {"commandLine": "python a.py; python b.py"}}', "runs more than one Python script"),
        (
            '{"customMpiSettings": {"commandLine": "python \'a.py"}}',
            "is not a valid command line: No closing quotation",
        ),
        (
            '{"horovodSettings": {"pythonScriptFilePath": "a.py"}, "mountVolumes": {"x": 1}}',
            "mountVolumes.x is not a list",
        ),
    ],
)
def test_what_is_no_job_is_refused(tmp_path: Path, content: str, words: str) -> None:
    """The error has the thing, the problem and the fix, and no file is left."""
    path = written(tmp_path, {})
    path.write_text(content)
    status, out = run(path, "--to", tmp_path / "pipelines" / "x.yaml")
    assert (1, True, False) == (status, words in out, (tmp_path / "pipelines" / "x.yaml").exists()), out


def test_a_hostile_job_makes_a_pipeline_and_nothing_else(tmp_path: Path) -> None:
    """No text of the job ends a comment, a value or a line, reaches another folder, or commands a terminal."""
    bad = 'x"\n  evil: 1 # \x1b[31m'
    properties = {
        "nodeCount": 4,
        "horovodSettings": {
            "pythonScriptFilePath": f"../../{bad}/-../$(rm).py",
            "commandLineArgs": " ".join(["a"] * 300) + " 'b\nc' ${{x}}",
        },
        "environmentVariables": [{"name": bad, "value": bad}, {"name": "A", "value": '": {'}, {"name": 1}],
        "containerSettings": {"shmSize": bad, "imageSourceRegistry": {"image": bad}},
    }
    pipeline, report = imported(tmp_path, properties)
    assert ("scripts/_rm_.py", 200, {"A": '": {'}) == (
        pipeline.train.script,
        len(pipeline.train.arguments),
        dict(pipeline.train.environment_variables),
    )
    (tmp_path / "pipelines" / "made.yaml").unlink()
    shown = run(written(tmp_path, properties), "--to", tmp_path / "pipelines" / "made.yaml")[1]
    assert "\x1b" not in shown
    assert len(report["not_mapped"]) > 100


@pytest.mark.parametrize(("backend", "distribution"), [("gloo", "pytorch"), ("mpi", "mpi")])
def test_a_pytorch_job_keeps_its_launcher(tmp_path: Path, backend: str, distribution: str) -> None:
    """Batch AI named the backend; under MPI a script asks Open MPI for its rank."""
    settings = {"pythonScriptFilePath": "a.py", "communicationBackend": backend}
    pipeline, report = imported(tmp_path, {"nodeCount": 2, "pyTorchSettings": settings})
    assert (distribution, True) == (pipeline.train.distribution, "pyTorchSettings" in str(not_mapped(report)))


def test_an_image_by_digest_becomes_the_pipeline_s_environment(tmp_path: Path) -> None:
    """A tag may name another image by now, so that it is only listed."""
    image = f"mine.azurecr.io/horovod@sha256:{'a' * 64}"
    registry = {"imageSourceRegistry": {"image": image}}
    pipeline, report = imported(tmp_path, {"horovodSettings": HOROVOD, "containerSettings": registry})
    assert pipeline.train.environment is not None
    assert (image, False) == (pipeline.train.environment.image, "imageSourceRegistry" in str(not_mapped(report)))
