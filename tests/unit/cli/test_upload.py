"""Which files are uploaded, and what is refused before anything is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.errors import CliError
from cli.upload import find_shards


def touch(folder: Path, *names: str) -> list[Path]:
    """Make small files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text(name)
    return [folder / name for name in names]


def test_folders_give_their_files_in_order_of_name(tmp_path: Path) -> None:
    """Files of a folder are sorted; hidden files and folders within are not shards."""
    touch(tmp_path, "b.tfrecord", "a.tfrecord", ".DS_Store")
    touch(tmp_path / "nested", "c.tfrecord")
    assert [tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"] == find_shards((tmp_path,))


def test_files_and_folders_may_be_mixed(tmp_path: Path) -> None:
    """Each source adds what it holds, in the order given."""
    [one], [two] = touch(tmp_path / "x", "one"), touch(tmp_path / "y", "two")
    assert [two, one] == find_shards((two, tmp_path / "x"))


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    """One would overwrite the other in the container."""
    touch(tmp_path / "x", "same")
    touch(tmp_path / "y", "same")
    with pytest.raises(CliError, match="Several files have the same name: same"):
        find_shards((tmp_path / "x", tmp_path / "y"))


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    """Nothing to upload is an error that names the folder."""
    with pytest.raises(CliError, match=f"{tmp_path}: there is no file to upload"):
        find_shards((tmp_path,))
