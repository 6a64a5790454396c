"""Files that pipelines bring: named, bounded and without links, or refused with a word on what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pathspec
import pytest

from function_app.config import own_files
from function_app.config.own_files import read_files
from function_app.config.pipeline_files import folder_mark, read_pipelines
from function_app.domain.errors import PipelineError

SHIPPED = Path(__file__).parents[4] / "pipelines"


def filled(folder: Path) -> Path:
    """Return a folder with a file of weights and two words."""
    (folder / "vocab" / "old").mkdir(parents=True)
    (folder / "weights.h5").write_bytes(b"w")
    (folder / "vocab" / "words.txt").write_text("a")
    (folder / "vocab" / "old" / "words.txt").write_text("b")
    return folder


def test_files_and_folders_are_found_under_their_names(tmp_path: Path) -> None:
    """They are sorted by name; each is listed once, however often it is named."""
    found = read_files(filled(tmp_path), ["weights.h5", "vocab/", "vocab/words.txt"])
    assert ["vocab/old/words.txt", "vocab/words.txt", "weights.h5"] == [one.name for one in found.files]
    assert found.files[1].path == tmp_path / "vocab" / "words.txt"


def test_the_version_follows_names_and_contents(tmp_path: Path) -> None:
    """It depends neither on the order in the pipeline file nor on the files' times."""
    first = read_files(filled(tmp_path), ["weights.h5", "vocab"]).version
    (tmp_path / "weights.h5").write_bytes(b"w")
    assert first == read_files(tmp_path, ["vocab", "weights.h5"]).version
    (tmp_path / "weights.h5").write_bytes(b"other")
    changed = read_files(tmp_path, ["weights.h5", "vocab"]).version
    (tmp_path / "weights.h5").write_bytes(b"w")
    (tmp_path / "vocab" / "words.txt").rename(tmp_path / "vocab" / "names.txt")
    assert 3 == len({first, changed, read_files(tmp_path, ["weights.h5", "vocab"]).version})


def linked(folder: Path) -> None:
    (folder / "weights.h5").unlink()
    (folder / "weights.h5").symlink_to("/etc/hostname")


def behind_a_link(folder: Path) -> None:
    (folder / "vocab" / "old").rename(folder / "elsewhere")
    (folder / "vocab" / "old").symlink_to(folder / "elsewhere")


def a_linked_folder(folder: Path) -> None:
    (folder / "vocab").rename(folder / "elsewhere")
    (folder / "vocab").symlink_to("/proc")


def strange(folder: Path) -> None:
    (folder / "vocab" / "a\nb $(x)").write_text("")


def emptied(folder: Path) -> None:
    for path in ("old/words.txt", "words.txt"):
        (folder / "vocab" / path).unlink()


def removed(folder: Path) -> None:
    (folder / "weights.h5").unlink()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (removed, "weights.h5 does not exist beside the pipeline file; put it there, or remove the entry"),
        (linked, "'weights.h5' is or is behind a symbolic link, whose target may change unnoticed; replace it by"),
        (behind_a_link, "'vocab/old' is or is behind a symbolic link"),
        (a_linked_folder, "'vocab' is or is behind a symbolic link"),
        (strange, "has a name that cannot be passed to a job; use letters, digits, - . and _"),
        (emptied, "vocab is an empty folder; put files into it, or remove the entry"),
    ],
)
def test_what_cannot_be_brought_is_refused(tmp_path: Path, spoil: Callable[[Path], None], words: str) -> None:
    """The message is one bounded line."""
    spoil(filled(tmp_path))
    with pytest.raises(PipelineError) as refused:
        read_files(tmp_path, ["weights.h5", "vocab"])
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_the_apps_package_would_not_have_is_refused(tmp_path: Path) -> None:
    """A file that .funcignore excludes would give the app another version than the published one."""
    lines = (SHIPPED.parent / ".funcignore").read_text().splitlines()
    ignored = pathspec.GitIgnoreSpec.from_lines(lines)
    own = [line.replace("*", "x") for line in lines if line and not line.startswith(("#", "."))]
    names = [f"{line}a" if line.endswith("/") else line for line in own]
    left_out = [name for name in names if ignored.match_file(f"pipelines/{name}") and "__pycache__" not in name]
    assert len(left_out) > 15
    for name in left_out:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
        with pytest.raises(PipelineError, match=r"keeps out of the function app's package"):
            read_files(tmp_path, [name])
    assert not ignored.match_file("pipelines/vocab/words.txt")


@pytest.mark.parametrize(("limit", "value"), [("MAX_FILES", 2), ("MAX_TOTAL_BYTES", 2)])
def test_more_than_the_limits_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    """The function app has them in its package, and reads each for its digest."""
    monkeypatch.setattr(own_files, limit, value)
    with pytest.raises(PipelineError, match=r"more than 2 files|3 bytes together, and 2 are allowed"):
        read_files(filled(tmp_path), ["weights.h5", "vocab"])


def pipelines(folder: Path, files: str) -> Path:
    """Write the pipeline of the digits, with files, into a folder."""
    (folder / "clusters.yaml").write_bytes((SHIPPED / "clusters.yaml").read_bytes())
    text = (SHIPPED / "digits.yaml").read_text()
    (folder / "digits.yaml").write_text(text.replace("train:\n", f"train:\n  files: {files}\n"))
    return folder


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ("[absent.h5]", "digits.yaml: train.files: absent.h5 does not exist beside the pipeline file"),
        ("[../secret]", "train.files.0: must be a file or a folder beside the pipeline file"),
        ("[/etc/passwd]", "train.files.0: must be a file or a folder beside the pipeline file"),
        ("[vocab/../../x]", "train.files.0: must be a file or a folder"),
        ("[.env]", "train.files.0: must be a file or a folder"),
        ("['a ${{inputs.data}}']", "train.files.0: must be a file or a folder"),
        ("weights.h5", "train.files: "),
        (str([f"f{number}" for number in range(201)]), "train.files: "),
    ],
)
def test_a_wrong_entry_takes_its_pipeline_out_of_service(tmp_path: Path, files: str, words: str) -> None:
    """The error names file, field and line before any node is requested."""
    [problems] = read_pipelines(pipelines(filled(tmp_path), files)).out_of_service.values()
    assert any(words in one and "(line " in one for one in problems), problems


def test_a_pipeline_in_service_knows_its_files(tmp_path: Path) -> None:
    """Those without have none."""
    found = read_pipelines(pipelines(filled(tmp_path), "[weights.h5]")).pipelines["digits"].files
    assert found is not None
    assert frozenset({"weights.h5"}) == found.names
    assert read_pipelines(SHIPPED).pipelines["digits"].files is None


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    """Pipelines are read again when a file beside them changes, in whatever folder."""
    before = folder_mark(filled(tmp_path))
    (tmp_path / "vocab" / "old" / "words.txt").write_text("longer")
    assert before != folder_mark(tmp_path)
