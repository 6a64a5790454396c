"""The content of shards is compared with the manifest while a training reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.exit_codes import ExitCode
from tests.unit.training_job.data.test_damage import written_shard
from training_job.data.content_check import ContentCheck, check_content
from training_job.errors import DataChangedError, DataError


def checking(*written: tuple[object, Path]) -> ContentCheck:
    paths = dict(written)
    return ContentCheck(list(paths), lambda shard: check_content(shard, paths[shard]))  # type: ignore[arg-type]


def test_shards_as_the_manifest_says_pass(tmp_path: Path) -> None:
    """Nothing is raised at the end, nor before."""
    check = checking(written_shard(tmp_path / "a"), written_shard(tmp_path / "b"))
    check.wait()
    check.raise_failure()


def test_a_shard_replaced_by_one_of_the_same_size_is_named(tmp_path: Path) -> None:
    """The error has both checksums and an exit code that does not blame the script."""
    shard, path = written_shard(tmp_path / "b")
    path.write_bytes(path.read_bytes()[::-1])
    check = checking(written_shard(tmp_path / "a"), (shard, path))
    with pytest.raises(DataChangedError, match=rf"Shard {path} has CRC32C [0-9a-f]{{8}} instead of") as caught:
        check.wait()
    assert (ExitCode.DATA_CHANGED, True) == (caught.value.exit_code, shard.crc32c in str(caught.value))
    with pytest.raises(DataChangedError):
        check.raise_failure()


def test_a_shard_that_is_gone_is_a_change(tmp_path: Path) -> None:
    """What was accepted is not there any more."""
    shard, path = written_shard(tmp_path / "a")
    path.unlink()
    with pytest.raises(DataChangedError, match=f"Shard {path} does not exist: it changed after"):
        checking((shard, path)).wait()


def test_a_shard_that_cannot_be_read_is_no_change(tmp_path: Path) -> None:
    """The storage failed; the shard may be what it was."""
    shard, path = written_shard(tmp_path / "a")
    path.unlink()
    path.mkdir()
    with pytest.raises(DataError, match=f"Shard {path} cannot be read: Is a directory") as caught:
        checking((shard, path)).wait()
    assert ExitCode.DATA == caught.value.exit_code


def test_a_check_that_breaks_does_not_pass() -> None:
    """A thread that ends on an unexpected error has not read the shards."""

    def broken(_: object) -> None:
        raise MemoryError("no memory")

    check = ContentCheck([object()], broken)  # type: ignore[list-item]
    with pytest.raises(DataError, match="content of this rank's shards cannot be checked: MemoryError"):
        check.wait()
