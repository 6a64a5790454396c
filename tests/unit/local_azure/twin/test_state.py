"""The twin's folder: one twin at a time, secrets for the user alone, files whole or absent."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from local_azure.processes import TwinError
from local_azure.twin.state import running_twins, take_state_folder, write_atomically, write_twin_file


def test_a_second_twin_of_a_clone_has_a_folder_of_its_own(tmp_path: Path) -> None:
    """The first twin's folder is locked while it runs."""
    first, second = take_state_folder(tmp_path), take_state_folder(tmp_path)
    first.release()
    second.release()
    assert ["twin", "twin-2"] == [first.path.name, second.path.name]


def test_a_stopped_twins_folder_is_used_again(tmp_path: Path) -> None:
    """The state persists from one start to the next."""
    take_state_folder(tmp_path).release()
    again = take_state_folder(tmp_path)
    again.release()
    assert tmp_path / "twin" == again.path


def test_secrets_persist_and_are_for_the_user_alone(tmp_path: Path) -> None:
    """The second start reads the first one's keys, from a file of mode 600."""
    folder = take_state_folder(tmp_path)
    made, read = folder.secrets(), folder.secrets()
    folder.release()
    mode = stat.S_IMODE((folder.path / "secrets.json").stat().st_mode)
    assert (made, 0o600) == (read, mode)


def test_two_folders_have_different_secrets(tmp_path: Path) -> None:
    """Nothing about the keys is fixed."""
    first, second = take_state_folder(tmp_path), take_state_folder(tmp_path)
    keys = {folder.secrets().data_account_key for folder in (first, second)}
    first.release()
    second.release()
    assert 2 == len(keys)


def test_damaged_secrets_name_the_file(tmp_path: Path) -> None:
    """The message says which file, and what to do."""
    folder = take_state_folder(tmp_path)
    (folder.path / "secrets.json").write_text("{}")
    with pytest.raises(TwinError, match=r"secrets\.json is damaged .* Remove the folder"):
        folder.secrets()
    folder.release()


def test_only_running_twins_are_found(tmp_path: Path) -> None:
    """What a twin wrote counts while it holds its lock."""
    running, stopped = take_state_folder(tmp_path), take_state_folder(tmp_path)
    for folder in (running, stopped):
        write_twin_file(folder.path, {"name": folder.path.name})
    stopped.release()
    found = running_twins(tmp_path)
    running.release()
    assert [{"name": "twin"}] == found


def test_a_file_is_written_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    """Writing replaces the old content and keeps no temporary file."""
    path = tmp_path / "demo.json"
    write_atomically(path, "old")
    write_atomically(path, "new")
    assert [("demo.json", "new")] == [(p.name, p.read_text()) for p in tmp_path.iterdir()]
