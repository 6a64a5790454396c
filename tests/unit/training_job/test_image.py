"""The Dockerfile of the cluster's image, and the check that it ends with, as far as both go without CUDA."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.support.processes import REPOSITORY
from tools.horovod_wheel import BUILD_FLAGS

FOLDER = REPOSITORY / "training_job" / "environment"
DIGEST = f"mcr.microsoft.com/azureml/x@sha256:{'0' * 64}"
BUILT = "[X] TensorFlow\n[X] MPI\n[X] NCCL"


def instructions(name: str) -> list[str]:
    """The arguments of every instruction of one kind, each on one line."""
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    code = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    return [" ".join(line.split()[1:]) for line in code.splitlines() if line.startswith(f"{name} ")]


def run_step(word: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the step that holds a word as the build does, with the image's shell, in a folder."""
    [step] = [one for one in instructions("RUN") if word in one]
    shell = json.loads(instructions("SHELL")[0])
    return subprocess.run([*shell, step], cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def check() -> ModuleType:
    """The program that the build ends with."""
    spec = importlib.util.spec_from_file_location("check_image", FOLDER / "check_image.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("base", "status"), [(DIGEST, 0), ("x:20250303.v1", 1), ("x", 1), ("x@sha256:12", 1), ("", 1)]
)
def test_the_base_must_be_stated_by_its_digest(tmp_path: Path, base: str, status: int) -> None:
    """There is no default, and a tag ends the build with a sentence."""
    ended = run_step("@sha256:", tmp_path, BASE_IMAGE=base)
    assert ("BASE_IMAGE", "${BASE_IMAGE}", status) == (
        instructions("ARG")[0],
        instructions("FROM")[0],
        ended.returncode,
    )
    assert (status == 1) == ("BASE_IMAGE must end with @sha256:" in ended.stderr)


def test_open_mpi_4_1_is_built_unless_the_base_s_is_wanted(tmp_path: Path) -> None:
    """Its source is known by its checksum: other content ends the build before anything is replaced."""
    arguments = dict(one.split("=") for one in instructions("ARG") if "=" in one)
    fake = tmp_path / "curl"
    fake.write_text("#!/bin/sh\necho other content > openmpi.tar.bz2\n")
    fake.chmod(0o755)
    kept = run_step("openmpi.tar.bz2", tmp_path, OPENMPI_VERSION="base", PATH="/nowhere")
    other = run_step("openmpi.tar.bz2", tmp_path, PATH=f"{tmp_path}:/usr/bin:/bin", **arguments)
    assert (0, 1, "openmpi.tar.bz2: FAILED") == (kept.returncode, other.returncode, other.stdout.strip())
    assert re.fullmatch(r"4\.1\.\d+", arguments["OPENMPI_VERSION"])


def test_programs_and_libraries_are_found_by_name() -> None:
    """Azure ML starts `mpirun` without a path, and NCCL finds its plug-in for InfiniBand on the path."""
    [paths] = [one for one in instructions("ENV") if one.startswith("PATH=")]
    path, libraries = (one.split("=")[1].split(":") for one in paths.split())
    assert ["${CONDA_PREFIX}/bin", "/usr/local/openmpi/bin", "${PATH}"] == path
    assert [
        "${CONDA_PREFIX}/lib",
        "/usr/local/openmpi/lib",
        "/usr/local/nccl-rdma-sharp-plugins/lib",
        "${LD_LIBRARY_PATH}",
    ] == libraries


def test_horovod_is_built_as_on_this_machine_and_for_every_gpu() -> None:
    """V100, A100 and H100; NCCL's shared library is asked for, instead of a fallback without a word."""
    [step] = [one for one in instructions("RUN") if "requirements-horovod.txt" in one]
    flags = dict(word.split("=") for word in step.split() if word.startswith("HOROVOD_"))
    assert BUILD_FLAGS.items() <= flags.items()
    assert ("NCCL", "SHARED", "70,80,90") == tuple(
        flags[f"HOROVOD_{name}"] for name in ("GPU_OPERATIONS", "NCCL_LINK", "BUILD_CUDA_CC_LIST")
    )
    assert "python check_image.py --device gpu |" in step


def test_a_failing_program_before_a_pipe_ends_the_build() -> None:
    """The pipe hid the exit status of the check."""
    shell = json.loads(instructions("SHELL")[0])
    assert 1 == subprocess.run([*shell, "false | cat"], check=False, timeout=60).returncode


def test_programs_that_are_missing_are_named(
    check: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with what needs it, and nothing else is tried."""
    monkeypatch.setenv("PATH", "/nowhere")
    assert 1 == check.main(["--device", "gpu"])
    lines = capsys.readouterr().out.splitlines()
    assert ["mpirun", "mpicxx", "ssh"] == [line.split()[1] for line in lines if line.startswith("problem: ")]
    assert "problem: mpirun is not on PATH: Azure ML starts the ranks with it, by its name" == lines[0]


@pytest.mark.parametrize(
    ("status", "said", "problems"),
    [
        (0, BUILT, []),
        (0, BUILT.replace("[X] NCCL", "[ ] NCCL"), ["Horovod was built without NCCL"]),
        (0, "[ ] MPI", [f"Horovod was built without {name}" for name in ("TensorFlow", "MPI", "NCCL")]),
        (3, "Traceback", ["horovodrun --check-build ended with 3: Traceback"]),
    ],
)
def test_what_horovod_lacks_is_named(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch, status: int, said: str, problems: list[str]
) -> None:
    """This holds even if the program itself fails."""
    monkeypatch.setattr(check, "_run", lambda *_, **__: (status, said))
    assert problems == list(check.unbuilt("gpu"))


def test_a_gpu_without_code_in_tensorflow_is_named(check: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Native code counts, and PTX of that generation; a TensorFlow for processors has neither."""
    for built, lost in (
        (["sm_70", "sm_80", "compute_90"], []),
        (["sm_60", "sm_80"], ["70", "90"]),
        ([], ["70", "80", "90"]),
    ):
        info = {"cuda_compute_capabilities": built}
        tensorflow = SimpleNamespace(
            __version__="2", sysconfig=SimpleNamespace(get_build_info=lambda info=info: info)
        )
        monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
        problems = list(check.missing_architectures())
        assert lost == [problem.partition("sm_")[2][:2] for problem in problems]


def test_a_library_that_is_not_there_is_named_but_for_the_driver_s(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The node brings the driver."""
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "mpi_lib.so").touch()
    said = "libcuda.so.1 => not found\nlibmpi.so.40 => not found\nlibc.so.6 => /lib/libc.so.6"
    monkeypatch.setattr(check, "package_folder", lambda _: tmp_path)
    monkeypatch.setattr(check, "_run", lambda *_, **__: (0, said))
    found = list(check.missing_libraries())
    assert ["mpi_lib.so: libraries not found: libcuda.so.1, libmpi.so.40"] == found
    monkeypatch.setattr(check, "_run", lambda *_, **__: (0, "libcuda.so.1 => not found"))
    assert [] == list(check.missing_libraries())
