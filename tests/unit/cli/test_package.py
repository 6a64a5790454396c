"""The package that `pip install .` makes: what is in it suffices for the commands that need no clone."""

from __future__ import annotations

import fnmatch
import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from PIL import Image

from cli import __version__
from cli.main import COMMANDS, ONLY_IN_CLONE
from tests.support.processes import REPOSITORY, child_environment

PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
ALONE = """
import importlib.abc, sys
site, hidden = sys.argv[1], sys.argv[2].split(",")

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
sys.path.insert(0, site)
del sys.argv[1:3]
"""
RUN = "from cli import start; start()"
EACH_COMMAND = """
import click
from cli.errors import CliError
from cli.main import landfall
for name in landfall.lazy:
    try:
        print(f"{name}: {landfall.get_command(click.Context(landfall), name).name}")
    except CliError as error:
        print(f"{name}: {error}")
"""
Landfall = Callable[..., "subprocess.CompletedProcess[str]"]


def closure(names: list[str]) -> set[str]:
    """Return the normalised names of distributions with all that they require."""
    found: set[str] = set()
    while names:
        name = re.sub(r"[-_.]+", "-", names.pop()).lower()
        if name not in found:
            found.add(name)
            needed = [Requirement(text) for text in importlib.metadata.requires(name) or []]
            names += [one.name for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


def modules_of_others() -> list[str]:
    """Return the top-level modules of this environment that come with no dependency of the package."""
    brought = closure([Requirement(text).name for text in PROJECT["project"]["dependencies"]])
    return [
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if not {re.sub(r"[-_.]+", "-", owner).lower() for owner in owners} & brought
    ]


def files_of_the_package() -> list[Path]:
    """Return what setuptools takes of the modules and data of the clone."""
    chosen, data = PROJECT["tool"]["setuptools"]["packages"]["find"], PROJECT["tool"]["setuptools"]["package-data"]

    def matches(package: str, kind: str) -> bool:
        return any(fnmatch.fnmatch(package, pattern) for pattern in chosen[kind])

    return [
        path
        for path in map(Path, tracked_files())
        if matches(package := ".".join(path.parts[:-1]), "include")
        and not matches(package, "exclude")
        and any(path.match(pattern) for pattern in ("*.py", *data.get(package, [])))
    ]


def tracked_files() -> list[str]:
    """Return the names of the clone's files."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\0") if name]


@pytest.fixture(scope="module")
def landfall(tmp_path_factory: pytest.TempPathFactory) -> Landfall:
    """The command, run from a copy of the package's files, without the modules that are not installed with it."""
    site, work = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("work")
    for file in files_of_the_package():
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / file, site / file)

    def run(*arguments: str, start: str = RUN) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-c", ALONE + start, str(site), ",".join(modules_of_others()), *arguments]
        return run_in(work, command)

    pictures(work / "pictures")
    (work / "pipelines").mkdir()
    shutil.copy(REPOSITORY / "pipelines" / "clusters.yaml", work / "pipelines")
    return run


def run_in(folder: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command without the settings of a function app."""
    return subprocess.run(
        command, cwd=folder, env=child_environment(), capture_output=True, text=True, check=False, timeout=300
    )


def pictures(folder: Path) -> None:
    """Write images in folders of their classes."""
    for number, name in enumerate(("cat", "dog")):
        (folder / name).mkdir(parents=True)
        for index in range(8):
            Image.new("RGB", (8, 8), (index, number * 100, 0)).save(folder / name / f"{index}.png")


def from_pictures_to_a_pipeline(landfall: Landfall) -> None:
    """Pack, look, check and validate."""
    for arguments in (
        ["pack", "images", "pictures", "--to", "shards/pets", "--validation-share", "0.5", "--shards", "2"],
        ["init", "shards/pets"],
        ["check"],
        ["validate", "shards/pets", "--pipeline", "pipelines/pets.yaml", "--processes", "2"],
    ):
        ended = landfall(*arguments)
        assert (0, "") == (ended.returncode, ended.stderr), (arguments, ended.stdout, ended.stderr)


def test_it_depends_on_the_pinned_versions() -> None:
    """Those of the clone's own environment."""
    pinned = set[str]()
    for name in ("requirements.txt", "requirements-dev.txt"):
        pinned |= set((REPOSITORY / name).read_text(encoding="utf-8").splitlines())
    assert [] == [one for one in PROJECT["project"]["dependencies"] if one not in pinned]


@pytest.mark.processes
def test_data_become_a_pipeline_without_a_clone(landfall: Landfall) -> None:
    """Worker processes included; the pipeline file is written into the working directory."""
    from_pictures_to_a_pipeline(landfall)
    ended = landfall("upload", "shards/pets", "--to", "pets/v1")
    assert (1, "Error: No storage account: pass --account-url.\n") == (ended.returncode, ended.stderr)


@pytest.mark.processes
def test_every_command_is_there_or_says_that_it_needs_a_clone(landfall: Landfall) -> None:
    """A command that imports what is not installed would end with a stack trace."""
    ended = landfall(start=EACH_COMMAND)
    assert (0, "") == (ended.returncode, ended.stderr)
    said = dict(line.split(": ", 1) for line in ended.stdout.splitlines())
    refused = {name for name, text in said.items() if text.startswith(f"landfall {name} needs a clone of Landfall")}
    assert (list(COMMANDS), sorted(ONLY_IN_CLONE)) == (list(said), sorted(refused))


@pytest.mark.processes
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--version"], f"landfall {__version__}"),
        (["runs"], "No function app to talk to: pass --url, or set LANDFALL_URL."),
    ],
    ids=["version", "runs"],
)
def test_what_it_says_without_a_function_app(landfall: Landfall, arguments: list[str], said: str) -> None:
    """No twin of a clone is looked for or advised."""
    ended = landfall(*arguments)
    assert said in ended.stdout + ended.stderr
    assert "landfall up" not in ended.stdout + ended.stderr


@pytest.mark.slow
@pytest.mark.processes
def test_an_installed_wheel_works(tmp_path: Path) -> None:
    """Built and installed by pip, with what the registry has."""
    source, environment = tmp_path / "source", tmp_path / "environment"
    for name in tracked_files():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, source / name)
    venv.create(environment, with_pip=True)
    subprocess.run(
        [environment / "bin" / "pip", "install", "--quiet", str(source)], check=True, cwd=tmp_path, timeout=900
    )
    pictures(tmp_path / "pictures")
    (tmp_path / "pipelines").mkdir()
    shutil.copy(REPOSITORY / "pipelines" / "clusters.yaml", tmp_path / "pipelines")
    from_pictures_to_a_pipeline(
        lambda *arguments: run_in(tmp_path, [str(environment / "bin" / "landfall"), *arguments])
    )
