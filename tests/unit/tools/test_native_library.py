"""The native library's build: once for each source, the last one only, and the compiler's words where it fails."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from shard_validation.tfrecord import native
from tools.logged import SetupError
from tools.native_library import SOURCE, build, library_of


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the source, with a name and so a log of its own."""
    return Path(shutil.copy(SOURCE, tmp_path / f"{tmp_path.name}.c"))


def libraries(source: Path) -> list[Path]:
    """Return what is built beside a source."""
    return sorted(source.parent.glob("*.so"))


def test_where_the_validator_looks_for_it() -> None:
    """It is built for the validator's own source, and put where that looks."""
    assert (native.SOURCE, native.library_path()) == (SOURCE, library_of(SOURCE))


def test_built_once(source: Path) -> None:
    """The same source is not built again."""
    build(source)
    (library,) = libraries(source)
    before = library.stat().st_mtime_ns
    build(source)
    assert (library_of(source), before) == (library, library.stat().st_mtime_ns)


def test_changed_source(source: Path) -> None:
    """Another source is built again, and the old library is gone."""
    build(source)
    source.write_text(source.read_text() + "/* more */\n")
    build(source)
    assert [library_of(source)] == libraries(source)


def test_broken_source(source: Path) -> None:
    """What cannot be built leaves no library, and is said in the compiler's words."""
    source.write_text("this is no C\n")
    with pytest.raises(SetupError, match="this is no C"):
        build(source)
    assert [] == libraries(source)
