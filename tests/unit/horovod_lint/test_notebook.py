"""Notebooks: the code cells are one script, IPython's own lines are no Python, and findings name the cell."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from horovod_lint import MAX_NOTEBOOK_BYTES, MAX_SCRIPT_BYTES, ScriptError, lint_script
from horovod_lint.notebook import read_notebook
from tests.unit.horovod_lint.scripts import FIT, TAPE

HVD = "import horovod.tensorflow as hvd\nhvd.init()\n"
WRITE = 'open("a", "w")'


def notebook(*cells: str, markdown: str = "# A title", **members: Any) -> bytes:
    """Return a notebook of format 4 with a text cell before each code cell."""
    written: list[dict[str, Any]] = []
    for text in cells:
        written.append({"cell_type": "markdown", "metadata": {}, "source": [markdown]})
        lines = text.splitlines(keepends=True)
        written.append({"cell_type": "code", "execution_count": 1, "metadata": {}, "outputs": [], "source": lines})
    return json.dumps({"nbformat": 4, "nbformat_minor": 2, "metadata": {}, "cells": written, **members}).encode()


def problem(content: bytes) -> str:
    """Return the error for a notebook that cannot be analysed."""
    with pytest.raises(ScriptError) as refused:
        lint_script(content, "mine.ipynb")
    return str(refused.value)


def places(content: bytes) -> list[tuple[str, int | None, int]]:
    """Return code, cell and line of each finding."""
    return [(str(f.code), f.cell, f.line) for f in lint_script(content, "mine.ipynb").findings]


def as_cells(script: str) -> bytes:
    """Return a script as a notebook: a cell for each paragraph that begins at the margin."""
    cells: list[str] = []
    for paragraph in script.split("\n\n"):
        if cells and paragraph[:1] in (" ", "\n", ""):
            cells[-1] += "\n\n" + paragraph
        else:
            cells.append(paragraph)
    return notebook(*cells)


@pytest.mark.parametrize("script", [TAPE, FIT])
def test_the_cells_of_a_correct_script_are_clean(script: str) -> None:
    """Names of one cell are known in the next ones, as when the notebook runs from top to bottom."""
    assert lint_script(as_cells(script), "mine.ipynb").is_clean


def test_a_finding_names_the_cell_and_its_line() -> None:
    """Cells are counted over text and code, and so are the places that a message names."""
    content = notebook(f"{HVD}x = 1", f"a = 1\nb = 2\n{WRITE}")
    assert [("written_by_every_rank", 4, 3)] == places(content)
    assert 4 == lint_script(content, "mine.ipynb").findings[0].to_json()["cell"]
    early = notebook("import horovod.tensorflow as hvd\nprint(hvd.rank())", "\nhvd.init()")
    message = lint_script(early, "mine.ipynb").findings[0].message
    assert message == "rank is called before hvd.init(), which is on line 2 of cell 4"


def test_a_comment_suppresses_in_its_cell() -> None:
    """One without effect is found where it is."""
    ignored = f"{WRITE}  # landfall: ignore[written_by_every_rank] the node's own disk"
    assert [] == places(notebook(HVD, ignored))
    useless = lint_script(notebook(HVD, "x = 1  # landfall: ignore[epochs_divided] no"), "mine.ipynb").findings[0]
    assert (4, "but line 1 of cell 4 has no such finding") == (useless.cell, useless.message[-40:])


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("%matplotlib inline\nx = 1", "pass\nx = 1"),
        ("!pip install horovod \\\n    --no-cache\nx = 1", "pass\n#\nx = 1"),
        ("if x:\n    !ls $HOME 'quoted\n    y = 1", "if x:\n    pass\n    y = 1"),
        ("files = !ls\nn = %pwd", "files = get_ipython()\nn = get_ipython()"),
        ("model.fit?\n?model\nmodel??", "pass\npass\npass"),
        ("%time model.fit(x)\nh = %time model.fit(y)", "model.fit(x)\nh = model.fit(y)"),
        ("%timeit f(x)", "pass"),
        ("%env A=b c\n%set_env D 1", "import os; os.environ['A'] = 'b c'\nimport os; os.environ['D'] = '1'"),
        ("%%time\nmodel.fit(x)", "# %%time\nmodel.fit(x)"),
        ("\n%%bash\nfor i in 1 2; do echo $i; done", "\n#\n#"),
        ("%%writefile train.py\nimport x", "#\n#"),
        ("x = ('%s'\n     % name)\ny = a != b", "x = ('%s'\n     % name)\ny = a != b"),
        ("s = '''\n%magic\n!ls\n'''\nt = 1", "s = '''\n%magic\n!ls\n'''\nt = 1"),
        ("x = a \\\n    % b  # \\\n%ls", "x = a \\\n    % b  # \\\npass"),
        ("s = 'it\\'s (' # )\n!ls", "s = 'it\\'s (' # )\npass"),
        ("x = 1\r\n!ls\r\ny = 2", "x = 1\npass\ny = 2"),
        ("await f()", "await f()"),
    ],
)
def test_what_ipython_handles_itself_is_not_python(cell: str, expected: str) -> None:
    """Each line stays where it is: what has no effect on the training becomes `pass`, the rest Python."""
    assert (expected,) == tuple("\n".join(each.lines) for each in read_notebook(notebook(cell), "mine.ipynb").cells)


def test_what_was_left_out_is_listed() -> None:
    """The list has its kind, its place and the beginning of its text."""
    content = notebook("%matplotlib inline\n!pip install x", "%%bash\nls", "f?\nx = !" + "y" * 99)
    assert [
        ("magic", 2, 1, "%matplotlib inline"),
        ("shell command", 2, 2, "!pip install x"),
        ("cell in another language", 4, 1, "%%bash"),
        ("help", 6, 1, "f?"),
        ("shell command", 6, 2, "x = !" + "y" * 55 + "…"),
    ] == [(str(o.kind), o.cell, o.line, o.text) for o in read_notebook(content, "mine.ipynb").omissions]


def test_a_variable_that_a_magic_sets_counts() -> None:
    """`%env TF_USE_LEGACY_KERAS=1` selects Keras 2, as the assignment to os.environ does."""
    with_magic = FIT.replace('import os\nos.environ["TF_USE_LEGACY_KERAS"] = "1"\n', "%env TF_USE_LEGACY_KERAS=1\n")
    assert [] == places(notebook(with_magic.lstrip()))
    assert ["keras3_incompatible"] == [p[0] for p in places(notebook(with_magic.replace("%env", "%alias")))]


def test_format_3_is_read() -> None:
    """Its cells lie in worksheets, and their text is called input."""
    cells = [
        {"cell_type": "heading", "level": 1, "source": "x"},
        {"cell_type": "code", "language": "python", "input": HVD + WRITE, "outputs": []},
    ]
    old = {"nbformat": 3, "nbformat_minor": 0, "metadata": {"name": "x"}, "worksheets": [{"cells": cells}]}
    assert [("written_by_every_rank", 2, 3)] == places(json.dumps(old).encode())


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "mine.ipynb: not a notebook: not valid JSON"),
        (b"\xff\xfe", "mine.ipynb: not a notebook: not valid JSON"),
        (b"[" * 100_000, "mine.ipynb: not a notebook: not valid JSON: it is nested too deeply"),
        (b"[1]", "mine.ipynb: is JSON, but not a notebook: it has no nbformat; pass a .py or .ipynb file"),
        (b'{"a": 1}', "mine.ipynb: is JSON, but not a notebook"),
        (
            notebook("x", nbformat=2),
            "mine.ipynb: the notebook has format 2, but only formats 3 and 4 are supported; convert",
        ),
        (notebook("x", nbformat="4"), "mine.ipynb: is JSON, but not a notebook"),
        (notebook("x", cells=None), "mine.ipynb: not a notebook: it has no list of cells; open it in Jupyter"),
        (notebook("x", cells=[{"cell_type": "code", "source": [1]}]), "mine.ipynb:cell 1: its source is not text"),
        (notebook("x", metadata={"kernelspec": {"language": "R"}}), "language is 'R'; only Python is supported"),
        (notebook("x", metadata={"language_info": {"name": "julia"}}), "language is 'julia'"),
        (notebook("x = 1", "y = 2\nx = (\n"), "mine.ipynb:cell 4:2: not Python 3: '(' was never closed"),
        (notebook("print 1"), "mine.ipynb:cell 2:1: not Python 3: Missing parentheses"),
        (notebook("x = '\ud800'"), "mine.ipynb:cell 2:1: not Python source"),
        (notebook("x" * (MAX_SCRIPT_BYTES + 1)), f"the code cells have more than {MAX_SCRIPT_BYTES} characters"),
        (b" " * (MAX_NOTEBOOK_BYTES + 1), "the notebook is larger than 32 MiB; clear the outputs of its cells"),
    ],
)
def test_a_broken_notebook_is_refused_with_the_place_and_the_fix(content: bytes, expected: str) -> None:
    """The error names the file, the cell, the problem and what to do."""
    assert expected in problem(content)


def test_odd_but_harmless_members_are_read() -> None:
    """Metadata of any kind, unknown kinds of cells, no cells."""
    for content in (notebook(), notebook("", "  \n"), notebook("x = 1", metadata=[1], extra=None)):
        assert lint_script(content, "mine.ipynb").is_clean


@pytest.mark.parametrize("name", ["mine.py", "job.json"])
def test_json_that_is_no_notebook_is_no_script(name: str) -> None:
    """A mapping alone is valid Python without findings, so a notebook under another name would be clean."""
    for content in (notebook("x = 1"), b'{"a": [1, null]}', b'[1, {"a": 1}]\n'):
        with pytest.raises(
            ScriptError, match=f"{name}: is JSON, not a script; the name of a notebook ends in .ipynb"
        ):
            lint_script(content, name)


@pytest.mark.parametrize("line", [" " * 99, "x =" + " " * 99, "f?" + " " * 99 + "x", "%env a" + " " * 99, "'" * 99])
def test_long_lines_take_linear_time(line: str) -> None:
    """No pattern tries a line again from each of its characters; work that grows with the square takes hours."""
    with contextlib.suppress(ScriptError):
        lint_script(notebook(line[:3] + line[3:] * 2000), "mine.ipynb")
