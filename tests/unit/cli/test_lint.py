"""`landfall lint`: exit status, what people read, what programs read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.lint import as_text
from horovod_lint import lint_script
from tests.support.terminal import landfall

GOOD = "import horovod.tensorflow as hvd\nhvd.init()\n"
BAD = "import horovod.tensorflow as hvd\nprint(hvd.rank())\n"
SLOW = GOOD + 'import os\nos.environ["NCCL_IB_DISABLE"] = "1"\n'
ADVISED = "import horovod.torch as hvd\nhvd.init()\n"
PIPELINE = Path(__file__).parents[3] / "pipelines" / "digits.yaml"


def written(folder: Path, text: str, name: str = "mine.py") -> Path:
    """Write a script and return its path."""
    path = folder / name
    path.write_text(text)
    return path


def test_a_clean_script(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One line, exit status 0."""
    path = written(tmp_path, GOOD)
    expected = (0, f"clean     {path}  (0 errors, 0 warnings, 0 advice)\n", "")
    assert expected == landfall(capsys, "lint", path)


def test_a_finding_says_where_why_and_what_to_write(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Exit status 1."""
    path = written(tmp_path, BAD)
    status, out, _ = landfall(capsys, "lint", path)
    place, why, fix, last = out.splitlines()
    assert (1, f"{path}:2:7: error missing_init: rank is called, but hvd.init() never is") == (status, place)
    assert ("    why: ", "    fix: Call `hvd.init()` once, before any other Horovod call.") == (why[:9], fix)
    assert f"FINDINGS  {path}  (1 error, 0 warnings, 0 advice)" == last


def test_advice_leaves_a_script_clean(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It is shown, and the exit status is 0."""
    status, out, _ = landfall(capsys, "lint", written(tmp_path, ADVISED))
    assert (0, True) == (status, "advice framework_partly_checked" in out)


def test_json_is_one_object_per_line_and_script(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Those that cannot be read are among them, and make the exit status 2."""
    paths = [written(tmp_path, text, name) for name, text in (("a.py", GOOD), ("b.py", BAD), ("c.py", "print 1"))]
    status, out, err = landfall(capsys, "lint", "--json", *paths)
    clean, bad, unreadable = map(json.loads, out.splitlines())
    assert (2, "", ["clean", "findings", "unreadable"]) == (
        status,
        err,
        [each["verdict"] for each in (clean, bad, unreadable)],
    )
    assert [str(path) for path in paths] == [each["script"] for each in (clean, bad, unreadable)]
    assert ["code", "severity", "line", "column", "message", "why", "fix"] == list(bad["findings"][0])
    assert (1, 0, 0, 0) == tuple(bad[f"num_{name}"] for name in ("errors", "warnings", "advice", "ignored"))
    assert f"{paths[2]}:1: not Python 3" in unreadable["problem"]


def test_several_scripts_have_a_sum(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The summary includes the scripts that could not be read."""
    paths = [written(tmp_path, text, name) for name, text in (("a.py", GOOD), ("b.py", BAD), ("c.py", "print 1"))]
    status, out, err = landfall(capsys, "lint", *paths)
    last = out.splitlines()[-1]
    assert (2, "1 of 3 scripts clean: 1 error, 0 warnings, 0 advice, 1 could not be read") == (status, last)
    assert err.startswith(f"Error: {paths[2]}:1: not Python 3")


def test_the_size_decides_on_the_network(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Named, in any case of letters, or by the cluster of a pipeline."""
    path = written(tmp_path, SLOW)
    assert 1 == landfall(capsys, "lint", path, "--vm-size", "standard_nd96asr_v4")[0]
    assert 0 == landfall(capsys, "lint", path, "--vm-size", "Standard_NC6s_v3")[0]
    written(tmp_path, "landfall-gpu: {sizes: [{vm_size: Standard_ND96asr_v4}]}", "clusters.yaml")
    pipeline = written(tmp_path, PIPELINE.read_text(), "digits.yaml")
    assert 1 == landfall(capsys, "lint", path, "--pipeline", pipeline)[0]
    assert 0 == landfall(capsys, "lint", path, "--pipeline", pipeline, "--vm-size", "Standard_NC6s_v3")[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "Missing argument 'SCRIPT|FOLDER ...'"),
        (("x" * 300,), "cannot be read: File name too long"),
        (("absent.py",), "absent.py: there is no such file"),
        (("--vm-size", "Standard_ND96asr_v3", "mine.py"), "did you mean Standard_ND96asr_v4"),
        (("--vm-size", "x", "mine.py"), "known are Standard_NC6s_v3, "),
        (("--pipeline", "mine.py", "mine.py"), "mine.py"),
        (("/dev/zero",), "/dev/zero: is a device or a pipe, not a script"),
    ],
)
def test_wrong_usage(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    words: str,
) -> None:
    """Exit status 2, with what was meant."""
    written(tmp_path, GOOD)
    monkeypatch.chdir(tmp_path)
    status, _, err = landfall(capsys, "lint", *arguments)
    assert (2, True) == (status, words in err), err


def test_a_script_that_is_not_there_keeps_no_other_from_being_looked_at(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Programs get a line for each."""
    absent, path = tmp_path / "absent.py", written(tmp_path, GOOD)
    status, out, err = landfall(capsys, "lint", "--json", absent, path)
    first, second = map(json.loads, out.splitlines())
    assert (2, "", "unreadable", "clean") == (status, err, first["verdict"], second["verdict"])
    assert f"{absent}: there is no such file" == first["problem"]


def test_a_name_commands_no_terminal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It does not add lines either."""
    for text in (BAD, "print 1"):
        _, out, err = landfall(capsys, "lint", written(tmp_path, text, "a\x1b[31m\nb.py"))
        assert {"a\\x1b[31m\\nb.py"} == {
            line.split("/")[-1].split(":")[0].split("  ")[0] for line in (out + err).splitlines() if "b.py" in line
        }


def test_a_terminal_gets_lines_of_its_width(tmp_path: Path) -> None:
    """Each under the word that it belongs to; the place is never broken."""
    path = written(tmp_path, "import horovod.tensorflow as hvd\nhvd.init()\nmodel.save(path='m')\n")
    place, *rest = as_text(path, lint_script(path.read_bytes(), "mine.py"), 60).splitlines()
    assert place.startswith(f"{path}:3:1: error written_by_every_rank")
    assert [
        "    why: Ranks overwrite each other; the result may be a",
        "         mixture that cannot be read.",
    ] == rest[:2]


def test_a_notebook_is_read_by_cells(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The place names the cell, for people and for programs, and outputs may be larger than a script."""
    picture = {"output_type": "display_data", "data": {"image/png": "A" * (1 << 20)}}
    cells = [{"cell_type": "code", "source": text, "outputs": [picture]} for text in ("%matplotlib inline", BAD)]
    path = written(tmp_path, json.dumps({"nbformat": 4, "metadata": {}, "cells": cells}), "mine.ipynb")
    status, out, _ = landfall(capsys, "lint", path)
    assert (1, f"{path}:cell 2:2:7: error missing_init: rank is called, but hvd.init() never is") == (
        status,
        out.splitlines()[0],
    )
    finding = json.loads(landfall(capsys, "lint", "--json", path)[1])["findings"][0]
    assert (2, 2, 7) == (finding["cell"], finding["line"], finding["column"])


def test_json_that_is_no_notebook_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The exit status is 2 with either file suffix."""
    for name, words in (("job.json", "is JSON, not a script"), ("job.ipynb", "is JSON, but not a notebook")):
        status, _, err = landfall(capsys, "lint", written(tmp_path, '{"properties": {}}', name))
        assert (2, True) == (status, words in err)


def test_a_folder_is_read_as_one_program(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Modules are read with the script that imports them; folders of tools and libraries are skipped."""
    script = written(
        tmp_path, "from common.start import begin\nbegin()\nimport horovod.tensorflow as hvd\nhvd.rank()\n"
    )
    (tmp_path / "common").mkdir()
    start = written(tmp_path / "common", "def begin():\n    print('ready')\n", "start.py")
    for skipped in (".ipynb_checkpoints", "__pycache__", "venv"):
        (tmp_path / skipped).mkdir()
        written(tmp_path / skipped, "print 1")
    status, out, err = landfall(capsys, "lint", tmp_path)
    assert (1, "") == (status, err)
    assert f"{script}:4:1: error missing_init" in out
    assert f"FINDINGS  {script}  (1 error, 0 warnings, 0 advice; with {start})" == out.splitlines()[-1]
    start.write_text("import horovod.tensorflow as hvd\n\ndef begin():\n    hvd.init()\n    open('a', 'w')\n")
    for arguments in ((tmp_path,), (start, script)):
        first, *_, last = landfall(capsys, "lint", *arguments)[1].splitlines()
        assert f"{start}:5:5: error written_by_every_rank: every rank calls open" == first
        assert last.startswith(f"FINDINGS  {script}  (1 error")
    found = json.loads(landfall(capsys, "lint", "--json", tmp_path)[1])
    assert (str(start), [str(start)]) == (found["findings"][0]["file"], found["modules"])


def test_a_folder_is_bounded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits are a number of files and of bytes; a folder without scripts is a mistake."""
    (tmp_path / "empty").mkdir()
    assert "has no script (.py) and no notebook (.ipynb)" in landfall(capsys, "lint", tmp_path / "empty")[2]
    for number in range(4):
        written(tmp_path, GOOD, f"{number}.py")
    monkeypatch.setattr("cli.lint.MAX_BYTES", 3 * len(GOOD))
    status, _, err = landfall(capsys, "lint", tmp_path)
    assert (2, True) == (status, "The scripts have more than" in err)
    monkeypatch.setattr("cli.lint.MAX_FILES", 3)
    status, _, err = landfall(capsys, "lint", tmp_path)
    assert (2, True) == (status, "There are more than 3 scripts and notebooks" in err)


def test_fix_corrects_a_script_and_prints_the_changes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """--diff prints the same and writes nothing; what is left is listed as usual."""
    path = written(tmp_path, f"{BAD}x = open('a', 'w')\n")
    path.chmod(0o750)
    link = tmp_path / "link.py"
    link.symlink_to(path)
    status, shown, _ = landfall(capsys, "lint", link, "--diff")
    changes = [f"--- {link}", f"+++ {link}", "@@ -1,3 +1,4 @@", " import horovod.tensorflow as hvd", "+hvd.init()"]
    assert (1, changes, 2) == (status, shown.splitlines()[:5], shown.count(": error "))
    assert path.read_text() == f"{BAD}x = open('a', 'w')\n"
    status, out, _ = landfall(capsys, "lint", link, "--fix")
    assert (1, shown.splitlines()[:7], 1) == (status, out.splitlines()[:7], out.count(": error "))
    assert path.read_text() == f"{BAD}x = open('a', 'w')\n".replace("hvd\n", "hvd\nhvd.init()\n", 1)
    assert (0o750, True, 2) == (path.stat().st_mode & 0o777, link.is_symlink(), len(list(tmp_path.iterdir())))
    status, out, _ = landfall(capsys, "lint", link, "--fix")
    assert (1, f"unchanged {link}  (it has no finding with a mechanical fix)") == (status, out.splitlines()[0])


def test_fix_corrects_the_cells_of_a_notebook_and_prints_the_changes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Cell by cell; nothing else of the file is touched."""
    lines = json.dumps(BAD.splitlines(keepends=True))
    content = f'{{"nbformat": 4, "cells": [{{"cell_type": "code", "outputs": ["é"], "source": {lines}}}]}}'
    path = written(tmp_path, content, "x.ipynb")
    status, out, _ = landfall(capsys, "lint", path, "--fix")
    assert [f"--- {path}:cell 1", f"+++ {path}:cell 1"] == out.splitlines()[:2]
    assert "+hvd.init()" in out.splitlines()
    corrected = json.dumps(BAD.replace("hvd\n", "hvd\nhvd.init()\n", 1).splitlines(keepends=True))
    assert (0, content.replace(lines, corrected)) == (status, path.read_text()), out
    assert f"unchanged {path}" in landfall(capsys, "lint", path, "--fix")[1]


def test_fix_passes_over_a_script_that_cannot_be_decoded(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The others of the folder are fixed, and the lint says what is wrong with it."""
    (tmp_path / "a.py").write_bytes('name = "Zoë"'.encode("latin-1"))
    (tmp_path / "b.py").write_text("x = 1")
    status, out, err = landfall(capsys, "lint", "--fix", tmp_path)
    assert (2, True, True) == (status, "unchanged" in out, "a.py:1: cannot decode the script" in err)


def test_fix_is_for_people(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What cannot be read is left as it is, and the lint says why."""
    assert "Leave out --json" in landfall(capsys, "lint", written(tmp_path, BAD), "--fix", "--json")[2]
    broken = written(tmp_path, "print 1", "broken.py")
    assert (2, "print 1") == (landfall(capsys, "lint", broken, "--fix")[0], broken.read_text())


def test_a_disk_that_is_full_leaves_the_script_whole(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new text is written aside first."""
    path = written(tmp_path, BAD)

    def full(aside: Path, content: bytes) -> int:
        aside.touch()
        raise OSError(28, "No space left on device", len(content))

    monkeypatch.setattr(Path, "write_bytes", full)
    status, _, err = landfall(capsys, "lint", path, "--fix")
    assert (1, True) == (status, "mine.py: cannot be written: No space left on device" in err)
    assert (BAD, ["mine.py"]) == (path.read_text(), [each.name for each in tmp_path.iterdir()])
