"""The package by itself: quick to import, without Azure, and used as its docstring shows."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import shard_validation
from tests.support.processes import REPOSITORY, child_environment
from tests.support.shards import NAME, framed, labelled

HEAVY = ("azure", "google.protobuf", "numpy", "pandas", "PIL", "pyarrow", "pydantic", "simplejpeg", "tensorflow")
OTHERS = ("bench", "cli", "function_app", "horovod_lint", "local_azure", "tests", "training_job")
LOADED = "print(json.dumps([name for name in sys.modules]))"

pytestmark = pytest.mark.processes


def loaded_by(program: str, folder: Path) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after running a program in a folder."""
    command = [sys.executable, "-c", f"import json, sys\n{program}\n{LOADED}"]
    environment = child_environment(PYTHONPATH=str(REPOSITORY))
    ended = subprocess.run(
        command, cwd=folder, env=environment, check=True, capture_output=True, text=True, timeout=300
    )
    return set(json.loads(ended.stdout.splitlines()[-1]))


def test_import_loads_no_azure_and_no_heavy_library(tmp_path: Path) -> None:
    """Importing the package loads only what every shard needs."""
    loaded = loaded_by("import shard_validation", tmp_path)
    assert "shard_validation.validate" in loaded
    assert [] == [name for name in (*HEAVY, *OTHERS) if name in loaded]


def test_integrity_of_a_tfrecord_shard_loads_no_heavy_library(tmp_path: Path) -> None:
    """The example in the docstring validates a file, and loads no library of other formats."""
    (tmp_path / "train-00000-of-00008.tfrecord").write_bytes(framed([labelled(1)]))
    lines = (shard_validation.__doc__ or "").splitlines()
    example = textwrap.dedent("\n".join(line for line in lines if line.startswith("    ")))
    loaded = loaded_by(f"{example}\nassert verdict.accepted", tmp_path)
    assert [] == [name for name in (*HEAVY, *OTHERS) if name in loaded]


def test_without_the_library_in_c(tmp_path: Path) -> None:
    """A copy of the package without its built library gives the same verdict."""
    copied = tmp_path / "shard_validation"
    subprocess.run(["cp", "-r", str(REPOSITORY / "shard_validation"), str(copied)], check=True)
    for built in copied.rglob("*.so"):
        built.unlink()
    content = framed([labelled(i % 10, image=bytes(i * 37 % 9000)) for i in range(600)])
    (tmp_path / NAME).write_bytes(content)
    program = (
        "import sys; from pathlib import Path; from shard_validation import LocalFileSource, validate_shard\n"
        "from shard_validation.tfrecord.native import native_records; assert native_records() is None\n"
        "LocalFileSource.chunk_bytes = 100_000\n"
        "verdict = validate_shard(LocalFileSource(Path(sys.argv[1]))); print(verdict.num_records, verdict.crc32c)"
    )
    environment = child_environment(PYTHONPATH=f"{tmp_path}:{REPOSITORY}")
    command = [sys.executable, "-c", program, str(tmp_path / NAME)]
    seen = subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout
    with shard_validation.LocalFileSource(tmp_path / NAME) as source:
        verdict = shard_validation.validate_shard(source)
    assert f"600 {verdict.crc32c}\n" == seen
