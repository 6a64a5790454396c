"""Files that are put into an output once, although storage may fail for a moment."""

from __future__ import annotations

import errno
import time
from pathlib import Path
from typing import Any

import pytest

from shared.output_files import TRIES, OutputFileError, put_bytes, put_file, put_folder, put_optional, read_bytes


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, which take no time."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    return pauses


class Failing:
    """``Path.open`` of storage that fails a number of times, in the middle of its work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times: int, number: int = errno.EIO) -> None:
        self.left, self.number, self.real = times, number, Path.open
        monkeypatch.setattr(Path, "open", lambda path, mode="r", *rest: self.open(path, mode, *rest))

    def open(self, path: Path, mode: str, *rest: Any) -> Any:
        """Leave a torn file where one is written, and fail."""
        if self.left == 0 or path.name.startswith("source"):
            return self.real(path, mode, *rest)
        self.left -= 1
        if "x" in mode:
            self.real(path, "wb").close()
        raise OSError(self.number, "Input/output error", str(path))


def test_a_folder_is_copied_with_all_below_it(tmp_path: Path) -> None:
    """Under the same names."""
    source = tmp_path / "source"
    (source / "variables").mkdir(parents=True)
    (source / "a").write_text("1")
    (source / "variables" / "b").write_text("2")
    put_folder(source, tmp_path / "out" / "model")
    found = {
        p.relative_to(tmp_path / "out").as_posix(): p.read_text() for p in tmp_path.glob("out/**/*") if p.is_file()
    }
    assert {"model/a": "1", "model/variables/b": "2"} == found


def test_a_file_of_an_earlier_training_is_replaced(tmp_path: Path) -> None:
    """The old file is deleted first, because no file is overwritten."""
    for content in (b"first", b"second"):
        put_bytes(content, tmp_path / "a")
    assert b"second" == read_bytes(tmp_path / "a", 100)


@pytest.mark.parametrize("times", [1, TRIES - 1])
def test_storage_that_fails_for_a_moment_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float], times: int
) -> None:
    """The pauses grow, and failed attempts leave no trace."""
    (tmp_path / "source").write_bytes(b"whole")
    Failing(monkeypatch, times)
    put_file(tmp_path / "source", tmp_path / "a")
    assert (b"whole", times) == ((tmp_path / "a").read_bytes(), len(pauses))
    Failing(monkeypatch, times)
    assert b"who" == read_bytes(tmp_path / "a", 3)


def test_storage_that_goes_on_failing_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    """The error has the file, the cause and the number of attempts; no partial file is left."""
    Failing(monkeypatch, 99)
    with pytest.raises(OutputFileError, match=r"/a cannot be written: Input/output error, 5 times in 3 s. Look at"):
        put_bytes(b"x", tmp_path / "a")
    assert (4, False) == (len(pauses), (tmp_path / "a").exists())
    with pytest.raises(OutputFileError, match=r"/a cannot be read: Input/output error, 5 times in 3 s\."):
        read_bytes(tmp_path / "a", 1)


def test_what_will_not_pass_by_itself_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    """A full disk, a missing permission; and a file that is not there is no error of storage."""
    Failing(monkeypatch, 1, errno.ENOSPC)
    with pytest.raises(OutputFileError, match=r"cannot be written: Input/output error\. Look at"):
        put_bytes(b"x", tmp_path / "a")
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "none", 1)
    assert [] == pauses


def test_what_can_do_without_is_a_line_on_stderr(
    tmp_path: Path, pauses: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    """A training does not fail for its summaries."""
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "source").write_bytes(b"x")
    (tmp_path / "out").write_text("not a folder")
    put_optional(tmp_path / "local", tmp_path / "out")
    assert f"{tmp_path}/out/source cannot be written: " in capsys.readouterr().err
    assert [] == pauses
