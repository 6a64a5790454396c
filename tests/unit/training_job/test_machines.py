"""What a job asked for, against what the launcher, Horovod and TensorFlow say."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from shared.exit_codes import ExitCode
from shared.job_arguments import SIMULATED_GPUS, SIMULATED_LOCAL_SIZE, JobArguments, ScriptArguments
from shared.progress import RankPlace, parse_rank_place
from tests.support.processes import REPOSITORY
from training_job.errors import MissingResourcesError
from training_job.machines import (
    NODES,
    announce,
    check_devices,
    check_launch,
    check_world,
    nodes_in_use,
    simulated_device,
)

PATHS = JobArguments(manifest="m", data="d", report="r", model="o", checkpoints="c")
EIGHT = replace(PATHS, expected_world_size=8, expected_nodes=2, expected_device="gpu")
SIZE, LOCAL_SIZE = "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"
OWN = ScriptArguments(
    data="d",
    manifest="m",
    output="o",
    checkpoint="c",
    report="r/report.json",
    arguments=("--data", "--expected-nodes", "it's"),
    expected_world_size=8,
    expected_nodes=2,
    expected_device="gpu",
)
SCRIPT = """
import json, os, sys
paths = {name: value for name, value in os.environ.items() if name.startswith("LANDFALL_")}
print(json.dumps([os.getpid(), sys.argv[1:], paths]))
sys.exit(7)
"""
PLAYED_TENSORFLOW = """
import os, sys
class config:
    @staticmethod
    def list_physical_devices(kind):
        print("libcuda.so.1 cannot be opened", file=sys.stderr)
        return [kind] * int(os.environ["PLAYED_GPUS"])
"""


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A process that nothing has started yet."""
    for name in (SIZE, LOCAL_SIZE, "OMPI_COMM_WORLD_RANK", SIMULATED_GPUS, SIMULATED_LOCAL_SIZE):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_a_rank_says_where_it_runs(launcher: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The nodes that the launcher names, and later the hosts that it has met."""
    variables = {"OMPI_COMM_WORLD_RANK": "5", SIZE: "8", LOCAL_SIZE: "4", NODES: "10.0.0.4,10.0.0.5"}
    for name, value in variables.items():
        launcher.setenv(name, value)
    announce()
    announce(["a", "a", "b", "b"])
    first, last = map(parse_rank_place, capsys.readouterr().out.splitlines())
    host = socket.gethostname()
    expected = RankPlace(rank=5, world_size=8, node=1, host=host, nodes=("10.0.0.4", "10.0.0.5"))
    assert (expected, replace(expected, met=("a", "b"))) == (first, last)


@pytest.mark.parametrize(
    ("variables", "seen"),
    [
        ({}, "this process was started without mpirun, as the only rank"),
        ({SIZE: "1", LOCAL_SIZE: "1"}, "the launcher started 1, 1 of them on this node"),
        ({SIZE: "4", LOCAL_SIZE: "4"}, "the launcher started 4, 4 of them on this node"),
        ({SIZE: "8", LOCAL_SIZE: "8"}, "the launcher started 8, 8 of them on this node"),
        ({SIZE: "8", LOCAL_SIZE: "7"}, "the launcher started 8, 7 of them on this node"),
        ({SIZE: "16", LOCAL_SIZE: "8"}, "the launcher started 16, 8 of them on this node"),
        ({SIZE: "8", LOCAL_SIZE: "8", SIMULATED_LOCAL_SIZE: "8"}, "the launcher started 8, 8 of them on this node"),
    ],
)
def test_other_ranks_than_were_paid_for_are_counted_before_tensorflow_is_loaded(
    launcher: pytest.MonkeyPatch, variables: dict[str, str], seen: str
) -> None:
    """One of eight, one node of two, all on one node, an uneven share; the text has both counts."""
    for name, value in variables.items():
        launcher.setenv(name, value)
    with pytest.raises(MissingResourcesError) as missing:
        check_launch(EIGHT)
    assert f"Expected 8 ranks on 2 nodes; {seen}." == str(missing.value)


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (EIGHT, {SIZE: "8", LOCAL_SIZE: "4"}),
        (EIGHT, {SIZE: "8", LOCAL_SIZE: "8", SIMULATED_LOCAL_SIZE: "4"}),
        (PATHS, {SIZE: "3", LOCAL_SIZE: "2"}),
        (PATHS, {}),
        (replace(PATHS, expected_world_size=1, expected_nodes=1), {SIZE: "1", LOCAL_SIZE: "1"}),
    ],
)
def test_a_whole_world_and_a_job_that_states_nothing_go_on(
    launcher: pytest.MonkeyPatch, arguments: JobArguments, variables: dict[str, str]
) -> None:
    """A training by hand, a job of an older deployment, and the twin's nodes, which share a machine."""
    for name, value in variables.items():
        launcher.setenv(name, value)
    check_launch(arguments)


@pytest.mark.parametrize(
    ("world_size", "num_nodes", "seen"), [(1, 1, "1 rank on 1 node"), (8, 1, "8 ranks on 1 node")]
)
def test_what_horovod_connected_counts(world_size: int, num_nodes: int, seen: str) -> None:
    """Ranks that an MPI of another version starts may each believe to be alone."""
    with pytest.raises(MissingResourcesError, match=f"Expected 8 ranks on 2 nodes; Horovod connected {seen}"):
        check_world(EIGHT, world_size, num_nodes)
    check_world(EIGHT, 8, 2)
    check_world(PATHS, world_size, num_nodes)


def test_one_rank_without_a_gpu_is_one_too_many() -> None:
    """This applies if GPUs are paid for; a size without GPUs expects none."""
    with pytest.raises(MissingResourcesError, match=r"^Expected a GPU for each of 8 ranks; TensorFlow has one on 7"):
        check_devices(EIGHT, 7, 8)
    check_devices(EIGHT, 8, 8)
    check_devices(replace(EIGHT, expected_device="cpu"), 0, 8)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({SIMULATED_GPUS: "4", SIMULATED_LOCAL_SIZE: "4", LOCAL_SIZE: "8"}, "simulated"),
        ({SIMULATED_GPUS: "3", SIMULATED_LOCAL_SIZE: "4", LOCAL_SIZE: "8"}, None),
        ({SIMULATED_GPUS: "4", LOCAL_SIZE: "4"}, "simulated"),
        ({SIMULATED_GPUS: "3", LOCAL_SIZE: "4"}, None),
        ({SIMULATED_GPUS: "1"}, "simulated"),
        ({SIMULATED_LOCAL_SIZE: "1"}, None),
        ({}, None),
    ],
)
def test_a_simulated_gpu_is_for_each_rank_of_a_node(
    launcher: pytest.MonkeyPatch, variables: Mapping[str, str], expected: str | None
) -> None:
    """Only the emulator declares them; the launcher counts the ranks of a node that is a host."""
    for name, value in variables.items():
        launcher.setenv(name, value)
    assert expected == simulated_device()


def test_simulated_nodes_count_in_place_of_the_machine_they_share(launcher: pytest.MonkeyPatch) -> None:
    """Horovod sees one."""
    real = nodes_in_use(8, 3)
    launcher.setenv(SIMULATED_LOCAL_SIZE, "4")
    assert (3, 2) == (real, nodes_in_use(8, 1))


# -- before a user's own script ------------------------------------------------------------------------------
def check_script(
    folder: Path, arguments: ScriptArguments, variables: Mapping[str, str], *, played_gpus: int = 0
) -> tuple[int, int, str, str]:
    """Check and start a script in a process; return its id, exit code, output and errors. TensorFlow is played."""
    (folder / "tensorflow.py").write_text(PLAYED_TENSORFLOW)
    script = folder / "mine.py"
    script.write_text(SCRIPT)
    path = os.pathsep.join([str(folder), str(REPOSITORY)])
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": path, "PLAYED_GPUS": str(played_gpus), **variables}
    command = [sys.executable, *shlex.split(arguments.to_command(str(script)))[1:]]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        output, errors = process.communicate()
    place, _, output = output.partition("\n")
    assert parse_rank_place(place) is not None, place
    return process.pid, process.returncode, output, errors


LAUNCHED = {SIZE: "8", LOCAL_SIZE: "4"}


@pytest.mark.parametrize("pass_paths", [True, False])
def test_a_script_runs_in_the_checked_process_with_its_paths(tmp_path: Path, *, pass_paths: bool) -> None:
    """The paths are flags and variables, or variables only, plus the pipeline's settings. The exit code is kept."""
    arguments = replace(OWN, pass_paths=pass_paths)
    pid, code, output, errors = check_script(tmp_path, arguments, LAUNCHED, played_gpus=4)
    paths = ["--data", "d", "--manifest", "m", "--output", "o", "--checkpoint", "c", "--report", "r/report.json"]
    words = [*(paths if pass_paths else []), "--data", "--expected-nodes", "it's"]
    variables = {f"LANDFALL_{name[2:].upper()}": value for name, value in zip(paths[::2], paths[1::2], strict=True)}
    assert (7, [pid, words, variables]) == (code, json.loads(output or "null")), errors


@pytest.mark.parametrize("pass_paths", [True, False])
def test_a_script_gets_the_folder_of_the_files_that_its_pipeline_brings(*, pass_paths: bool) -> None:
    """The flag follows the paths if it gets those; its own arguments stay unchanged, even similar ones."""
    own = replace(OWN, arguments=("--files", "mine"), files="/mnt/f", pass_paths=pass_paths)
    read = ScriptArguments.from_argv(shlex.split(own.to_command("mine.py"))[4:])
    assert (own, "/mnt/f") == (read, read.environment()["LANDFALL_FILES"])
    assert [*(["--files", "/mnt/f"] if pass_paths else []), "--files", "mine"] == read.to_script()[
        -4 if pass_paths else -2 :
    ]
    without = replace(own, files="")
    assert without == ScriptArguments.from_argv(shlex.split(without.to_command("mine.py"))[4:])
    assert "LANDFALL_FILES" not in without.environment()


@pytest.mark.parametrize(
    "variables",
    [
        {SIZE: "8", LOCAL_SIZE: "4", "OMPI_COMM_WORLD_RANK": "3"},
        {"RANK": "3", "LOCAL_RANK": "3", "WORLD_SIZE": "8", "AZUREML_NODE_COUNT": "2"},
    ],
)
def test_only_the_root_gets_the_outputs_of_the_job(tmp_path: Path, variables: dict[str, str]) -> None:
    """With any launcher, other ranks write to their own disks; they share data and checkpoints."""
    _, _, output, errors = check_script(tmp_path, OWN, {**variables, "TMPDIR": str(tmp_path)}, played_gpus=4)
    _, words, paths = json.loads(output or "null")
    own, report = Path(paths["LANDFALL_OUTPUT"]), Path(paths["LANDFALL_REPORT"])
    assert ("d", "c", "report.json") == (paths["LANDFALL_DATA"], paths["LANDFALL_CHECKPOINT"], report.name), errors
    assert [True, True, True] == [own.is_dir(), own.parent == report.parent, own.is_relative_to(tmp_path)]
    assert [str(own), str(report)] == [words[words.index(flag) + 1] for flag in ("--output", "--report")]


def test_a_script_does_not_start_in_a_world_that_is_too_small(tmp_path: Path) -> None:
    """A script need not know that anything is expected."""
    _, code, output, errors = check_script(tmp_path, OWN, {})
    expected = "training failed (rank 0): Expected 8 ranks on 2 nodes; this process was started without mpirun"
    assert (ExitCode.MISSING_RESOURCES, "", True) == (code, output, errors.startswith(expected)), errors


@pytest.mark.parametrize("num_gpus", [0, 3])
def test_a_script_does_not_start_without_a_gpu_for_each_rank_of_its_node(tmp_path: Path, num_gpus: int) -> None:
    """TensorFlow's own words are in the log."""
    _, code, output, errors = check_script(tmp_path, OWN, LAUNCHED, played_gpus=num_gpus)
    expected = f"Expected a GPU for each of 4 ranks of this node; TensorFlow finds {num_gpus} GPUs."
    assert (ExitCode.MISSING_RESOURCES, "", True, True) == (
        code,
        output,
        expected in errors,
        errors.startswith("libcuda.so.1 cannot be opened"),
    )


@pytest.mark.parametrize(
    ("device", "variables"),
    [
        ("cpu", LAUNCHED),
        ("gpu", {**LAUNCHED, SIMULATED_GPUS: "4", SIMULATED_LOCAL_SIZE: "4"}),
        ("gpu", {**LAUNCHED, "OMPI_COMM_WORLD_LOCAL_RANK": "1"}),
    ],
)
def test_tensorflow_is_not_loaded_where_nothing_has_to_be_counted(
    tmp_path: Path, device: str, variables: dict[str, str]
) -> None:
    """The cases are a size without GPUs, the twin, and all ranks of a node except the first."""
    arguments = replace(OWN, expected_device=device)  # type: ignore[arg-type]
    _, code, _, errors = check_script(tmp_path, arguments, variables)
    assert (7, "") == (code, errors)
