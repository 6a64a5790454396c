"""The folder and ports of a twin: one twin at a time, secrets for the user alone, files whole or absent."""

from __future__ import annotations

import json
import socket
import stat
from dataclasses import asdict
from pathlib import Path

import pytest

from local_azure.processes import TwinError
from local_azure.twin.state import (
    STRIDE,
    TWIN_FILE,
    is_free,
    running_twins,
    take_ports,
    take_state_folder,
    write_atomically,
    write_twin_file,
)
from tests.support.processes import free_port


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


def test_secrets_of_an_earlier_version_are_read(tmp_path: Path) -> None:
    """What it lacked is added, what is no longer used goes, and the data stay readable."""
    folder = take_state_folder(tmp_path)
    made = asdict(folder.secrets())
    earlier = {name: value for name, value in made.items() if name != "master_key"} | {"system_key": "x"}
    (folder.path / "secrets.json").write_text(json.dumps(earlier))
    read = asdict(folder.secrets())
    folder.release()
    assert made | {"master_key": read["master_key"]} == read
    assert read == json.loads((folder.path / "secrets.json").read_text())


def test_only_running_twins_are_found(tmp_path: Path) -> None:
    """What a twin wrote counts while it holds its lock."""
    running, stopped = take_state_folder(tmp_path), take_state_folder(tmp_path)
    for folder in (running, stopped):
        write_twin_file(folder.path, {"name": folder.path.name})
    stopped.release()
    found = running_twins(tmp_path)
    running.release()
    assert [{"name": "twin"}] == found


def test_a_twin_that_stops_meanwhile_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It removes its description while it still holds its lock."""
    stopping = take_state_folder(tmp_path)
    write_twin_file(stopping.path, {"name": "twin"})

    def stops(_: Path) -> bool:
        (stopping.path / TWIN_FILE).unlink()
        return True

    monkeypatch.setattr("local_azure.twin.state._is_locked", stops)
    found = running_twins(tmp_path)
    stopping.release()
    assert [] == found


def test_a_file_is_written_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    """Writing replaces the old content and keeps no temporary file."""
    path = tmp_path / "demo.json"
    write_atomically(path, "old")
    write_atomically(path, "new")
    assert [("demo.json", "new")] == [(p.name, p.read_text()) for p in tmp_path.iterdir()]


def free_neighbours(count: int) -> int:
    """Return a port that is free, as are the next ones in steps of STRIDE."""
    while True:
        port = free_port()
        if all(port + STRIDE * i < 1 << 16 and is_free(port + STRIDE * i) for i in range(count)):
            return port


def test_a_free_default_is_taken(tmp_path: Path) -> None:
    """An unused port stays as the documentation names it."""
    port = free_neighbours(1)
    ports = take_ports({"blob": port}, folder=tmp_path)
    ports.release()
    assert {"blob": port} == ports.numbers


def test_a_port_that_something_listens_on_is_passed_over(tmp_path: Path) -> None:
    """The port moves by ten when another program listens."""
    port = free_neighbours(2)
    with socket.create_server(("127.0.0.1", port)):
        ports = take_ports({"blob": port}, folder=tmp_path)
    ports.release()
    assert port + STRIDE == ports["blob"]


def test_two_twins_never_get_the_same_port(tmp_path: Path) -> None:
    """A port that a twin took but does not listen on yet is kept from the next twin."""
    port = free_neighbours(2)
    first = take_ports({"blob": port}, folder=tmp_path)
    second = take_ports({"blob": port}, folder=tmp_path)
    first.release()
    second.release()
    assert (port, port + STRIDE) == (first["blob"], second["blob"])


def test_released_ports_can_be_taken_again(tmp_path: Path) -> None:
    """A stopped twin's ports are the next twin's."""
    port = free_neighbours(1)
    take_ports({"blob": port}, folder=tmp_path).release()
    again = take_ports({"blob": port}, folder=tmp_path)
    again.release()
    assert port == again["blob"]


def test_two_services_of_one_twin_get_different_ports(tmp_path: Path) -> None:
    """One default for two services is no collision."""
    port = free_neighbours(2)
    ports = take_ports({"blob": port, "queue": port}, folder=tmp_path)
    ports.release()
    assert {"blob": port, "queue": port + STRIDE} == ports.numbers


def test_no_port_within_reach_is_an_error_for_people(tmp_path: Path) -> None:
    """The message names the service and the port."""
    with pytest.raises(TwinError, match="no free port for blob: tried 70000"):
        take_ports({"blob": 70000}, folder=tmp_path)


def test_a_folder_that_cannot_be_used_is_an_error_for_people(tmp_path: Path) -> None:
    """The message names the folder and the reason."""
    (tmp_path / "file").write_text("")
    with pytest.raises(TwinError, match=r"which keeps twins apart, cannot be used: .*Not a directory"):
        take_ports({"blob": 10000}, folder=tmp_path / "file" / "ports")


def test_a_twins_folder_is_for_its_owner_only(tmp_path: Path) -> None:
    """Its parts write logs and storage into it; one that an older version made is closed too."""
    (tmp_path / "twin").mkdir(mode=0o755)
    folder = take_state_folder(tmp_path)
    folder.release()
    assert 0o700 == stat.S_IMODE(folder.path.stat().st_mode)
