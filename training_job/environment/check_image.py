"""Check an image for what a training needs: `python check_image.py --device gpu`, the last step of the Dockerfile.

Every problem is a line, and makes the exit status 1. It also runs in the environment of this machine, with
``--device cpu``: then Horovod needs no NCCL, and TensorFlow no GPU architectures.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

PROGRAMS = {
    "mpirun": "Azure ML starts the ranks with it, by its name",
    "mpicxx": "Horovod is built with it",
    "ssh": "mpirun reaches the other nodes with it",
}
ARCHITECTURES = {"70": "V100", "80": "A100", "90": "H100"}
OF_THE_DRIVER = "libcuda.so.1"
"""Part of the node's driver; the image has a stub for it."""
NUM_RANKS = 2
WORLD = f"""
import horovod.tensorflow as hvd, tensorflow as tf
hvd.init()
total = float(hvd.allreduce(tf.constant(hvd.rank() + 1.0), op=hvd.Sum))
if (hvd.size(), total) != ({NUM_RANKS}, 3.0):
    raise SystemExit(f"{{hvd.size()}} ranks, sum {{total}}")
"""
TIMEOUT_S = 600


def main(arguments: Sequence[str]) -> int:
    """Print what was checked and every problem; return 1 if there is one."""
    parser = argparse.ArgumentParser(description="Check what a training needs of its image.")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu", help="default: gpu")
    device = parser.parse_args(arguments).device
    problems = list(missing_programs()) or list(wrong_build(device))
    for problem in problems:
        print(f"problem: {problem}")
    print(f"{len(problems)} problems in the image for device {device}")
    return 1 if problems else 0


def missing_programs() -> Iterator[str]:
    """Yield the programs that are not on PATH."""
    for name, need in PROGRAMS.items():
        if shutil.which(name) is None:
            yield f"{name} is not on PATH: {need}"


def wrong_build(device: str) -> Iterator[str]:
    """Yield the problems of Horovod and TensorFlow, once the programs exist."""
    yield from unbuilt(device)
    yield from missing_libraries()
    if device == "gpu":
        yield from missing_architectures()
    yield from wrong_world()


def unbuilt(device: str) -> Iterator[str]:
    """Yield the parts that Horovod was built without."""
    status, said = _run("horovodrun", "--check-build")
    if status != 0:
        yield f"horovodrun --check-build ended with {status}: {said}"
        return
    print(said)
    for part in ("TensorFlow", "MPI", *(("NCCL",) if device == "gpu" else ())):
        if f"[X] {part}" not in said:
            yield f"Horovod was built without {part}"


def missing_architectures() -> Iterator[str]:
    """Yield the GPUs for which TensorFlow has no code: native, or PTX of that generation."""
    import tensorflow as tf

    info = tf.sysconfig.get_build_info()
    print(f"TensorFlow {tf.__version__}: {dict(info)}")
    built = info.get("cuda_compute_capabilities") or []
    for number, gpu in ARCHITECTURES.items():
        if not {f"sm_{number}", f"compute_{number}"} & set(built):
            yield f"TensorFlow was built without sm_{number} ({gpu}): it has {', '.join(built) or 'no GPU code'}"


def missing_libraries() -> Iterator[str]:
    """Yield the libraries that Horovod's operations would not find."""
    operations = sorted((package_folder("horovod") / "tensorflow").glob("mpi_lib*.so"))
    if not operations:
        yield "Horovod has no operations for TensorFlow: horovod/tensorflow/mpi_lib*.so"
    folders = [str(package_folder("tensorflow")), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    for path in operations:
        status, said = _run("ldd", str(path), LD_LIBRARY_PATH=os.pathsep.join(folders))
        lost = [line.split()[0] for line in said.splitlines() if "not found" in line]
        if status != 0 or set(lost) - {OF_THE_DRIVER}:
            yield f"{path.name}: libraries not found: {', '.join(lost) or said}"


def package_folder(name: str) -> Path:
    """Return an installed package's folder, without importing it. Raises ModuleNotFoundError."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"{name} is not installed", name=name)
    return Path(found.origin).parent


def wrong_world() -> Iterator[str]:
    """Yield the problems of two ranks that connect on this machine and add numbers."""
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = ("mpirun", "--oversubscribe", "-np", str(NUM_RANKS), sys.executable, "-c", WORLD)
    status, said = _run(*command, **as_root)
    if status != 0:
        yield f"two ranks did not connect: mpirun ended with {status}: {said[-2000:]}"


def _run(*command: str, **environment: str) -> tuple[int, str]:
    """Run a program; return its exit status and everything that it printed."""
    ended = subprocess.run(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    return ended.returncode, ended.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
