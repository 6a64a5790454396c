"""The build of the training's native library: once for each source and TensorFlow, and words where it cannot be."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path

import pytest

from tests.support.processes import REPOSITORY
from tools.exchange_library import COMPILE, build, tensorflow_version
from tools.logged import SetupError
from training_job.exchange.library import SOURCES, library_of

VERSION = "2.18.1"
WARNINGS = ("-Wall", "-Wextra", "-Werror")
TRAINING = REPOSITORY / ".venv-training"
FLAGS = "from tensorflow import sysconfig; import json; print(json.dumps(sysconfig.get_compile_flags()))"

on_x86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="the library is built for x86-64 alone")


def program(path: Path, script: str) -> None:
    """Write a program of the shell."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def installed(environment: Path, *versions: str) -> Path:
    """Make an environment with what pip leaves of TensorFlow, and an interpreter that knows no flags of it."""
    for version in versions:
        (environment / f"lib/python3.11/site-packages/tensorflow_cpu-{version}.dist-info").mkdir(parents=True)
    program(environment / "bin" / "python", "echo '[[], []]'")
    return environment


def libraries(environment: Path) -> list[Path]:
    """Return all that lies where the library belongs."""
    return sorted((environment / "lib" / "landfall").glob("*"))


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that writes its arguments where the library should be: a real one takes seconds."""
    script = 'all="$*"; while [ "$1" != -o ]; do shift; done; echo "$all" > "$2"'
    program(tmp_path / "compiler" / "g++", script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'compiler'}{os.pathsep}{os.environ['PATH']}")


def test_version(tmp_path: Path) -> None:
    """The version is that of the installed package, without loading it."""
    assert VERSION == tensorflow_version(installed(tmp_path, VERSION))


def test_no_tensorflow(tmp_path: Path) -> None:
    """An environment without TensorFlow is named, with what to do."""
    with pytest.raises(
        SetupError, match=rf"{tmp_path.name} should have tensorflow-cpu, has none: remove that folder"
    ):
        tensorflow_version(installed(tmp_path))


def test_place() -> None:
    """It lies in its environment, another for each TensorFlow, and not in the tree."""
    places = [library_of(Path(folder), version) for folder in ("one", "two") for version in (VERSION, "2.19.0")]
    assert 4 == len(set(places))
    assert [Path(folder, "lib", "landfall") for folder in ("one", "one", "two", "two")] == [p.parent for p in places]
    assert {".so"} == {place.suffix for place in places}


def test_sources() -> None:
    """The sum's core and TensorFlow's operation over it."""
    assert ["rank_sums.cc", "rank_sums_op.cc"] == [path.name for path in SOURCES]


@on_x86_64
@pytest.mark.usefixtures("compiler")
def test_building(tmp_path: Path) -> None:
    """All sources are compiled with what TensorFlow asks for, into the place where the training looks."""
    environment = installed(tmp_path / "environment", VERSION)
    program(environment / "bin" / "python", "echo 'a remark'; echo '[[\"-Iheaders\"], [\"-lframework\"]]'")
    build(environment)
    library = library_of(environment, VERSION)
    compiled = f"-O3 -fPIC -shared -Iheaders -o {library.with_suffix('.new')} {SOURCES[0]} {SOURCES[1]} -lframework\n"
    assert (compiled, [library]) == (library.read_text(), libraries(environment))


@on_x86_64
@pytest.mark.usefixtures("compiler")
def test_built_once(tmp_path: Path) -> None:
    """What is there already is neither built again nor are flags asked for."""
    environment = installed(tmp_path / "environment", VERSION)
    library = library_of(environment, VERSION)
    library.parent.mkdir(parents=True)
    library.write_text("built before")
    program(environment / "bin" / "python", "exit 1")
    build(environment)
    assert ("built before", [library]) == (library.read_text(), libraries(environment))


@on_x86_64
@pytest.mark.usefixtures("compiler")
def test_another_tensorflow(tmp_path: Path) -> None:
    """The library for the TensorFlow before is gone once the new one is there."""
    environment = installed(tmp_path / "environment", VERSION)
    old = library_of(environment, "2.17.0")
    old.parent.mkdir(parents=True)
    old.write_text("for another")
    build(environment)
    assert [library_of(environment, VERSION)] == libraries(environment)


@on_x86_64
def test_tensorflow_that_does_not_load(tmp_path: Path) -> None:
    """Its own words are handed on, and no library is left."""
    environment = installed(tmp_path, VERSION)
    program(environment / "bin" / "python", "echo 'no module of that name' >&2; exit 1")
    with pytest.raises(SetupError, match="TensorFlow does not load: no module of that name"):
        build(environment)
    assert [] == libraries(environment)


@on_x86_64
def test_headers_that_are_not_there(tmp_path: Path) -> None:
    """What cannot be compiled leaves no library, and is said in the compiler's words."""
    environment = installed(tmp_path, VERSION)
    with pytest.raises(SetupError, match=r"tensorflow/core/framework/op\.h"):
        build(environment)
    assert [] == libraries(environment)


@on_x86_64
def test_no_warning(tmp_path: Path) -> None:
    """No compiler's warning is about our sources; those about TensorFlow's headers are not ours."""
    if not (TRAINING / "bin" / "python").exists():
        pytest.skip("needs TensorFlow in .venv-training: run `make setup`")
    asked = subprocess.run(
        [str(TRAINING / "bin" / "python"), "-c", FLAGS], check=True, capture_output=True, text=True
    )
    flags = [flag.replace("-I", "-isystem", 1) for flag in json.loads(asked.stdout.splitlines()[-1])]
    command = [*COMPILE, *WARNINGS, *flags, "-o", str(tmp_path / "rank_sums.so"), *map(str, SOURCES)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (0, "") == (ended.returncode, ended.stderr)
