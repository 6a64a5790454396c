"""What stands in a process's environment before TensorFlow and MPI are loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.training_options import TrainingOptions
from training_job.process_environment import launched_rank, launched_world_size, run_id, set_for, threads_per_rank


def test_options_become_horovods_own_names(tmp_path: Path) -> None:
    """Fusion in bytes, the cycle in milliseconds, the timeline beside the report."""
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
    """A default is only for what nobody decided."""
    environment = {"OMPI_MCA_mpi_yield_when_idle": "0", "HOROVOD_CYCLE_TIME": "3"}
    set_for(TrainingOptions(), Path("r"), environment)
    assert ("0", "3") == (environment["OMPI_MCA_mpi_yield_when_idle"], environment["HOROVOD_CYCLE_TIME"])


def test_where_cores_carry_the_exchange_it_is_cut_to_their_cache(tmp_path: Path) -> None:
    """Where NVIDIA's driver is, Horovod's own sizes and times stay: they are made for it."""
    on_cpus: dict[str, str] = {}
    on_gpus: dict[str, str] = {}
    driver = tmp_path / "version"
    set_for(TrainingOptions(), tmp_path, on_cpus, driver)
    driver.touch()
    set_for(TrainingOptions(), tmp_path, on_gpus, driver)
    assert {
        "HOROVOD_FUSION_THRESHOLD": "1048576",
        "OMPI_MCA_smsc": "^cma",
    } == dict(on_cpus.items() - on_gpus.items())


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
    """Before MPI is loaded."""
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "3")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    monkeypatch.setenv("AZUREML_RUN_ID", "run")
    assert (3, 4, "run") == (launched_rank(), launched_world_size(), run_id())


def test_ranks_of_one_node_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """And each has one at least."""
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "1000")
    assert 1 == threads_per_rank()
