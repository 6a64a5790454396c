"""Ports: the usual ones where free, others where not, never those of another twin."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from local_azure.ports import STRIDE, free_port, is_free, take_ports
from local_azure.processes import TwinError


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
