"""The code asset: what is in it, and what its name depends on."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.errors import CliError
from cli.publish import snapshot
from tests.support.processes import REPOSITORY


def clone(folder: Path) -> tuple[Path, Path]:
    """Make a small clone; return it and its pipelines."""
    contents = {
        "shared/__init__.py": "",
        "training_job/train.py": "print('train')",
        "training_job/environment/Dockerfile": "FROM x",
        "training_job/environment/check.py": "",
        "training_job/data/notes.txt": "",
        "training_job/__pycache__/train.cpython-311.pyc": "x",
        "function_app/app.py": "",
        "pipelines/digits.yaml": "x",
        "pipelines/scripts/mine.py": "print('mine')",
    }
    for name, text in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder, folder / "pipelines"


def test_a_snapshot_is_shared_training_and_scripts(tmp_path: Path) -> None:
    """Python sources: no environment, no bytecode, no notes, nothing of the function app."""
    assert [
        "scripts/mine.py",
        "shared/__init__.py",
        "training_job/train.py",
    ] == sorted(snapshot.collect(*clone(tmp_path)))


def test_the_same_code_has_the_same_digest_wherever_it_is(tmp_path: Path) -> None:
    """Folder and time of checkout do not matter."""
    digests = {snapshot.digest(snapshot.collect(*clone(tmp_path / name))) for name in ("one", "two")}
    assert 1 == len(digests)


@pytest.mark.parametrize("change", ["content", "name"])
def test_changed_code_has_another_digest(tmp_path: Path, change: str) -> None:
    """A changed content and a changed name both count."""
    root, pipelines = clone(tmp_path)
    before = snapshot.digest(snapshot.collect(root, pipelines))
    script = pipelines / "scripts" / "mine.py"
    script.write_text("print('other')") if change == "content" else script.rename(script.with_name("other.py"))
    assert before != snapshot.digest(snapshot.collect(root, pipelines))


def test_building_copies_the_files(tmp_path: Path) -> None:
    """The folder holds what the training will find in its working directory."""
    files = snapshot.collect(*clone(tmp_path / "clone"))
    snapshot.build(files, tmp_path / "built")
    assert "print('mine')" == (tmp_path / "built" / "scripts" / "mine.py").read_text()


def test_a_link_is_refused(tmp_path: Path) -> None:
    """What a link points to may change without the digest knowing."""
    root, pipelines = clone(tmp_path)
    (pipelines / "scripts" / "link.py").symlink_to(root / "function_app" / "app.py")
    with pytest.raises(CliError, match=r"link\.py is a symbolic link"):
        snapshot.collect(root, pipelines)


def test_data_are_refused(tmp_path: Path) -> None:
    """A large file among the scripts is a mistake that would be uploaded with every change."""
    root, pipelines = clone(tmp_path)
    with (pipelines / "scripts" / "data.bin").open("wb") as file:
        file.truncate(snapshot.MAX_FILE_BYTES + 1)
    with pytest.raises(CliError, match=r"data\.bin should be code of at most"):
        snapshot.collect(root, pipelines)


def test_this_clones_snapshot_holds_what_the_training_imports() -> None:
    """The contract and the training's entry point are in it."""
    files = snapshot.collect(REPOSITORY, REPOSITORY / "pipelines")
    assert {"shared/manifest.py", "training_job/train.py"} <= set(files)
