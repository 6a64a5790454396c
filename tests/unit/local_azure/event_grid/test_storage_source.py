from __future__ import annotations

from pathlib import Path

import pytest

from local_azure.event_grid.storage_source import MAX_READ_BYTES, LogTail, Position, StorageWrite, parse_line

PREFIX = '127.0.0.1 - - [20/Nov/2026:11:37:09 +0000] "'


def _line(method: str, target: str, status: int) -> str:
    return f'{PREFIX}{method} {target} HTTP/1.1" {status} -'


@pytest.mark.parametrize(
    ("method", "target", "status", "api"),
    [
        ("PUT", "/data/c/a", 201, "PutBlob"),
        ("PUT", "/data/c/a?sv=2026&sig=x%2F", 201, "PutBlob"),
        ("PUT", "/data/c/a?comp=blocklist&timeout=3", 201, "PutBlockList"),
        ("PUT", "/data/c/a", 202, "CopyBlob"),
        ("DELETE", "/data/c/a", 202, "DeleteBlob"),
    ],
)
def test_successful_writes_are_distinguished(method: str, target: str, status: int, api: str) -> None:
    """Method, operation and status decide; a signature in the query does not matter."""
    write = parse_line(_line(method, target, status), "data")

    assert write is not None
    assert (api, "c", "a") == (write.api, write.container, write.blob)


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("PUT", "/data/c/a?comp=block&blockid=MDAw", 201),
        ("PUT", "/data/c/a", 409),
        ("PUT", "/data/c/a", 412),
        ("PUT", "/data/c/a?comp=metadata", 200),
        ("PUT", "/data/c/a?comp=snapshot", 201),
        ("PUT", "/data/c/a?comp=lease", 201),
        ("PUT", "/data/c/a?comp=appendblock", 201),
        ("DELETE", "/data/c/a?snapshot=2026", 202),
        ("PUT", "/data/c?restype=container", 201),
        ("DELETE", "/data/c?restype=container", 202),
        ("PUT", "/other/c/a", 201),
        ("PUT", "/database/c/a", 201),
        ("PUT", "/data/c/", 201),
        ("HEAD", "/data/c/a", 200),
        ("GET", "/data/c/a", 200),
    ],
)
def test_everything_else_is_no_write(method: str, target: str, status: int) -> None:
    """Reads, failures, blocks, leases, containers, and other accounts."""
    assert parse_line(_line(method, target, status), "data") is None


@pytest.mark.parametrize(
    "line", ["", "Azurite Blob service is successfully listening at http://127.0.0.1:1", '"PUT x']
)
def test_other_lines_are_passed_over(line: str) -> None:
    """Azurite's own messages and noise."""
    assert parse_line(line, "data") is None


def test_a_name_is_decoded_and_encoded_as_the_sdk_does() -> None:
    """Whatever the client left unencoded, the URL equals that of the SDK's blob client."""
    write = parse_line(_line("PUT", "/data/c/a%20b/(1)+%2520%C3%A9", 201), "data")

    assert StorageWrite(api="PutBlob", container="c", blob="a b/(1)+%20é") == write
    assert "c/a%20b/%281%29%2B%2520%C3%A9" == write.encoded_path


def _append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as log:
        log.write(text)


def _resumed(tail: LogTail, path: Path) -> LogTail:
    """Return the state after a restart."""
    return LogTail(path, Position(offset=tail.position.offset, mark=tail.position.mark))


def test_it_starts_at_the_end_and_gives_each_line_once(tmp_path: Path) -> None:
    """Old lines are not returned; new ones are, in order, also after a restart."""
    log = tmp_path / "log"
    log.write_text("old\n", encoding="utf-8")
    tail = LogTail(log, None)
    assert [] == tail.read_lines()
    _append(log, "one\ntwo\n")
    assert ["one", "two"] == tail.read_lines()
    _append(log, "three\n")

    again = _resumed(tail, log)
    assert ["three"] == again.read_lines()
    assert [] == again.read_lines()


def test_a_line_that_is_being_written_waits_for_its_end(tmp_path: Path) -> None:
    """This includes a tail that starts in the middle of the line."""
    log = tmp_path / "log"
    log.write_text("old\nha", encoding="utf-8")
    tail = LogTail(log, None)
    assert [] == tail.read_lines()
    _append(log, "lf\nne")
    assert ["half"] == tail.read_lines()
    _append(log, "xt\n")
    assert ["next"] == tail.read_lines()


def test_a_file_that_comes_later_is_read_from_its_start(tmp_path: Path) -> None:
    """The emulator may start before Azurite."""
    log = tmp_path / "log"
    tail = LogTail(log, None)
    assert [] == tail.read_lines()
    log.write_text("first\n", encoding="utf-8")

    assert ["first"] == tail.read_lines()


def test_an_emptied_file_is_read_from_its_start(tmp_path: Path) -> None:
    """This holds even if it has grown beyond the old offset before the next check."""
    log = tmp_path / "log"
    log.write_text("old\n", encoding="utf-8")
    tail = LogTail(log, None)
    log.write_text("a longer line than before\nanother\n", encoding="utf-8")

    assert ["a longer line than before", "another"] == tail.read_lines()
    assert [] == tail.read_lines()


def test_a_file_in_its_place_is_read_from_its_start(tmp_path: Path) -> None:
    """Rotation: the name belongs to another file after a restart."""
    log = tmp_path / "log"
    log.write_text("a\nb\n", encoding="utf-8")
    tail = LogTail(log, None)
    log.rename(tmp_path / "log.1")
    log.write_text("c\n", encoding="utf-8")

    assert ["c"] == _resumed(tail, log).read_lines()


def test_much_is_read_in_pieces_without_loss(tmp_path: Path) -> None:
    """More than one read's worth: every line comes, each once."""
    log = tmp_path / "log"
    tail = LogTail(log, None)
    lines = [f"line {index:05} {'x' * 100}" for index in range(3 * MAX_READ_BYTES // 110)]
    _append(log, "".join(f"{line}\n" for line in lines))

    seen: list[str] = []
    while piece := tail.read_lines():
        seen += piece
    assert lines == seen


def test_noise_without_an_end_does_not_stop_it(tmp_path: Path) -> None:
    """A line longer than a read is passed over in pieces."""
    log = tmp_path / "log"
    tail = LogTail(log, None)
    _append(log, "x" * (MAX_READ_BYTES + 10) + "\nafter\n")

    seen: list[str] = []
    while piece := tail.read_lines():
        seen += piece
    assert "after" == seen[-1]
