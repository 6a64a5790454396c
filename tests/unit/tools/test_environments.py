"""An environment is made where it belongs, and nobody else's is emptied for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.environments import Environment
from tools.logged import SetupError


def install(folder: Path) -> None:
    """Stand for what installs: it begins with an empty folder."""
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    (folder / "installed").touch()


def environment(folder: Path) -> Environment:
    """Return one that is made from nothing."""
    return Environment(folder=folder, files=(), install=install)


def test_another_clones_environment_is_left_alone(tmp_path: Path) -> None:
    """A link to an environment that was made for another clone is refused, and nothing in it changes."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    environment(theirs).prepare()
    (theirs / "more").touch()
    ours.symlink_to(theirs)
    with pytest.raises(SetupError, match=f"{ours} is a link to {theirs}, which was made for another clone"):
        environment(ours).prepare()
    assert {"installed", "more", ".landfall-stamp"} == {path.name for path in theirs.iterdir()}


def test_an_environment_may_lie_on_another_disk(tmp_path: Path) -> None:
    """A link to an empty folder is made an environment, once."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "ours").symlink_to(tmp_path / "disk")
    environment(tmp_path / "ours").prepare()
    (tmp_path / "disk" / "more").touch()
    environment(tmp_path / "ours").prepare()
    assert {"installed", "more", ".landfall-stamp"} == {path.name for path in (tmp_path / "disk").iterdir()}
