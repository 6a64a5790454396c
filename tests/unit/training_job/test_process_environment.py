"""What stands in a process's environment before TensorFlow and MPI are loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from shared.job_arguments import TrainingOptions
from tests.support.processes import REPOSITORY
from training_job.errors import TrainingError
from training_job.process_environment import (
    Launched,
    launched,
    launched_rank,
    launched_world_size,
    pin_gpu,
    run_id,
    set_for,
    threads_per_rank,
)


def test_options_become_horovods_own_names(tmp_path: Path) -> None:
    """Fusion in bytes, the cycle in milliseconds, the timeline in the local folder."""
    environment: dict[str, str] = {}
    options = TrainingOptions(fusion_threshold_mb=32, cycle_time_ms=2.5, autotune=True, timeline=True)
    set_for(options, tmp_path, environment)
    assert {
        "HOROVOD_FUSION_THRESHOLD": "33554432",
        "HOROVOD_CYCLE_TIME": "2.5",
        "HOROVOD_AUTOTUNE": "1",
        "HOROVOD_TIMELINE": f"{tmp_path}/horovod_timeline.json",
    }.items() <= environment.items()


def test_what_the_caller_has_set_is_left_alone() -> None:
    """A default is only for what is not set."""
    environment = {"OMPI_MCA_mpi_yield_when_idle": "0", "HOROVOD_CYCLE_TIME": "3"}
    set_for(TrainingOptions(), Path("r"), environment)
    assert ("0", "3") == (environment["OMPI_MCA_mpi_yield_when_idle"], environment["HOROVOD_CYCLE_TIME"])


def test_where_cores_carry_the_exchange_it_is_cut_to_their_cache(tmp_path: Path) -> None:
    """With NVIDIA's driver, Horovod's own sizes and times stay, because they are made for it."""
    on_cpus: dict[str, str] = {}
    on_gpus: dict[str, str] = {}
    driver = tmp_path / "version"
    set_for(TrainingOptions(), tmp_path, on_cpus, driver)
    driver.touch()
    set_for(TrainingOptions(), tmp_path, on_gpus, driver)
    assert {"HOROVOD_FUSION_THRESHOLD": "1048576"} == dict(on_cpus.items() - on_gpus.items())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"model_name": "ResNet50"}, "20"),
        ({"model_name": "small_cnn"}, None),
        ({"model_name": "ResNet50", "model_module": "mine.py"}, None),
    ],
)
def test_ranks_negotiate_less_often_where_steps_are_long(
    tmp_path: Path, options: dict[str, str], expected: str | None
) -> None:
    """A short step would wait for the negotiation longer than it computes; of a user's own model nothing is known."""
    environment: dict[str, str] = {}
    set_for(TrainingOptions(**options), tmp_path, environment, tmp_path / "no driver")  # type: ignore[arg-type]
    assert expected == environment.get("HOROVOD_CYCLE_TIME")


def test_what_is_to_be_tuned_is_not_set(tmp_path: Path) -> None:
    """Horovod's autotuning takes a value from the environment as decided."""
    environment: dict[str, str] = {}
    set_for(TrainingOptions(autotune=True), tmp_path, environment, tmp_path / "no driver")
    assert set() == {"HOROVOD_CYCLE_TIME", "HOROVOD_FUSION_THRESHOLD"} & environment.keys()


def test_without_a_launcher_a_process_is_a_world_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 of 1, in a run called local."""
    for name in ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "AZUREML_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    assert (0, 1, "local") == (launched_rank(), launched_world_size(), run_id())


def test_the_launcher_and_azure_ml_say_who_this_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is known before MPI is loaded."""
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    monkeypatch.setenv("AZUREML_RUN_ID", "run")
    assert (3, 4, "run") == (launched_rank(), launched_world_size(), run_id())


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (
            {"TF_CONFIG": '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}'},
            Launched(by="tensorflow", rank=1, world_size=2),
        ),
        (
            {"RANK": "5", "LOCAL_RANK": "1", "NODE_RANK": "1", "WORLD_SIZE": "8", "AZUREML_NODE_COUNT": "2"},
            Launched(by="pytorch", rank=5, world_size=8, local_rank=1, local_size=4),
        ),
        (
            {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "RANK": "7", "WORLD_SIZE": "8"},
            Launched(by="mpirun", rank=1, world_size=2),
        ),
        ({"RANK": "7"}, Launched(by=None)),
    ],
)
def test_each_launcher_says_it_in_its_own_words(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: Launched
) -> None:
    """Azure ML sets them; Open MPI's have priority, because a container may contain others."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert expected == launched()


def test_ranks_of_one_node_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank has at least one core."""
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "1000")
    assert 1 == threads_per_rank()


_THREADS = 6
_PROGRAM = f"""
import ctypes, pathlib, sys, tempfile, threading
from shared.job_arguments import TrainingOptions
from training_job.process_environment import limit_arenas
from training_job.process_environment import set_for

if sys.argv[1] == "as a rank":
    set_for(TrainingOptions(), pathlib.Path("report"))
elif sys.argv[1] != "none":
    limit_arenas(int(sys.argv[1]))
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
together = threading.Barrier({_THREADS})

def take():
    memory = bytearray(50_000)
    together.wait()

threads = [threading.Thread(target=take) for _ in range({_THREADS})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
with tempfile.NamedTemporaryFile() as info:
    file = ctypes.c_void_p(libc.fopen(info.name.encode(), b"w"))
    libc.malloc_info(0, file)
    libc.fclose(file)
    print(pathlib.Path(info.name).read_text().count("<heap nr="))
"""


def arenas(limit: str, **environment: str) -> int:
    """Return the number of arenas after six threads had memory at the same time."""
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM, limit],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), **environment},
        stdout=subprocess.PIPE,
        check=True,
    )
    return int(ended.stdout)


def test_threads_share_the_arenas_there_are() -> None:
    """Without a limit, the six threads and the main one would each have an arena."""
    assert (7, 2, 1) == (arenas("none"), arenas("2"), arenas("1"))


def test_a_rank_has_as_many_arenas_as_cores() -> None:
    """Its environment is set with the limit: here, one core of a node's that many ranks share."""
    assert 1 == arenas("as a rank", OMPI_COMM_WORLD_LOCAL_SIZE="1000")


@pytest.mark.parametrize(
    "stated",
    [{"MALLOC_ARENA_MAX": "4"}, {"GLIBC_TUNABLES": "glibc.malloc.arena_max=4"}],
    ids=lambda stated: str(*stated),
)
def test_a_limit_of_arenas_in_the_environment_is_left_alone(stated: dict[str, str]) -> None:
    """The limit is for a process whose environment states none."""
    assert 4 == arenas("2", **stated)


@dataclass(frozen=True)
class Gpu:
    """A device."""

    name: str


@dataclass
class Machine:
    """A node with GPUs, and what was asked of it in which order; its own ``experimental``, as TensorFlow's."""

    num_gpus: int
    asked: list[tuple[str, object]] = field(default_factory=list)

    @property
    def experimental(self) -> Machine:
        return self

    def list_physical_devices(self, device_type: str) -> Sequence[Gpu]:
        return [Gpu(f"/physical_device:{device_type}:{i}") for i in range(self.num_gpus)]

    def set_visible_devices(self, devices: Sequence[Gpu], device_type: str) -> None:
        self.asked.append((f"visible {device_type}", [gpu.name for gpu in devices]))

    def set_memory_growth(self, device: Gpu, enable: bool) -> None:  # noqa: FBT001 (TensorFlow's signature)
        self.asked.append((f"growth {device.name}", enable))


def test_a_rank_gets_the_gpu_of_its_local_rank() -> None:
    """It grows in it, and sees no other."""
    machine = Machine(4)
    assert "/physical_device:GPU:2" == pin_gpu(machine, 2)
    assert [("growth /physical_device:GPU:2", True), ("visible GPU", ["/physical_device:GPU:2"])] == machine.asked


def test_without_gpus_nothing_is_pinned() -> None:
    """A machine with processors only."""
    machine = Machine(0)
    assert (None, []) == (pin_gpu(machine, 1), machine.asked)


def test_more_ranks_than_gpus_are_refused() -> None:
    """Two ranks in one GPU would both be slow, without an explanation."""
    with pytest.raises(TrainingError, match=r"Local rank 2 has no GPU of its own: its node has 2"):
        pin_gpu(Machine(2), 2)
