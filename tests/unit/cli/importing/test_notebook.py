"""`landfall script from-notebook`: a script that runs where no notebook is, and what it does not have."""

from __future__ import annotations

import ast
import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.support.terminal import landfall
from tests.unit.horovod_lint.scripts import FIT
from tests.unit.horovod_lint.test_notebook import as_cells, notebook

TRAINING = """%matplotlib inline
import matplotlib.pyplot as plt
import math

!pip install horovod \\
    --upgrade
%env SOME_VARIABLE=7
files = !ls
%time x = math.sqrt(16)
if x:
    !echo $x"""
SHOWING = """fig, axes = plt.subplots(2)
for axis in axes:
    axis.plot(x)
plt.show()
x
print(x); plt.close()"""
FUNCTIONS = """def draw(values):
    '''Draw it.'''
    figure = plt.figure(figsize=(3, 4))
    for value in values:
        figure.plot(value)

def train(values):
    total = sum(values)
    return total

draw([x])
result = train([x])"""


def made(
    capsys: pytest.CaptureFixture[str], folder: Path, *cells: str, options: tuple[str, ...] = ()
) -> tuple[str, list[dict[str, Any]]]:
    """Make a script of cells; return its text and what was left out."""
    path = folder / "mine.ipynb"
    path.write_bytes(notebook(*cells))
    status, out, err = landfall(capsys, "script", "from-notebook", path, "--json", "--overwrite", *options)
    assert (0, "") == (status, err)
    report = json.loads(out)
    text = Path(report["script"]).read_text()
    compile(text, "mine.py", "exec")
    return text, report["left_out"]


def test_magics_and_shell_commands_stay_as_comments(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What `%time` and `%env` do stays; what a command returned is None, and is listed."""
    text, left_out = made(capsys, tmp_path, TRAINING)
    assert [
        ("magic", 2, 1, "%matplotlib inline"),
        ("plot or output", 2, 2, "import matplotlib.pyplot as plt"),
        ("shell command", 2, 5, "!pip install horovod \\"),
        ("shell command", 2, 8, "files = !ls"),
        ("shell command", 2, 11, "!echo $x"),
    ] == [(each["kind"], each["cell"], each["line"], each["text"]) for each in left_out]
    lines = text.splitlines()
    assert ["", "# Cell 2", "# %matplotlib inline", "# import matplotlib.pyplot as plt", "import math", ""] == lines[
        1:7
    ]
    assert ["# !pip install horovod \\", "", "import os; os.environ['SOME_VARIABLE'] = '7'"] == lines[7:10]
    assert ["files = None  # files = !ls", "x = math.sqrt(16)", "if x:", "    pass  # !echo $x"] == lines[10:]


def test_plots_are_left_out_and_the_script_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """This includes functions that only draw; a line that does something else is kept, with what it needs."""
    text, left_out = made(
        capsys, tmp_path, "x = 3\nimport matplotlib.pyplot as plt", SHOWING.rsplit("\n", 1)[0], FUNCTIONS
    )
    assert [2, 1, 2, 4, 5, 1, 11] == [each["line"] for each in left_out]
    assert "# fig, axes = plt.subplots(2)\n# for axis in axes:\n#     axis.plot(x)\n# plt.show()\n# x\n" in text
    assert 3 == runpy.run_path(str(tmp_path / "mine.py"))["result"]
    text, _ = made(capsys, tmp_path, "x = 3\nimport matplotlib.pyplot as plt", SHOWING)
    assert {"import matplotlib.pyplot as plt", "print(x); plt.close()", "# plt.show()"} <= set(text.splitlines())


@pytest.mark.parametrize(
    "cell",
    [
        "import matplotlib.pyplot as plt\ndef run(model):\n    h = model.fit(1)\n    plt.plot(h)\nrun(model)",
        "import matplotlib.pyplot as plt\nfor x in data:\n    plt.plot(x)\n    total = x\nprint(total)",
        "import seaborn as sns\npalette = sns.color_palette()\nmodel.fit(palette)",
        "import IPython\ndef draw(x):\n    IPython.display(x)\ncallbacks = [draw]",
        "from matplotlib import pyplot\npyplot.plot(model.fit(x).history['loss'])",
        "import pylab\nif train():\n    pylab.show()\nfor loss in steps():\n    pylab.plot(loss)\nresults[train()]",
        "model.summary()\nmodel.fit(x)\nsave(model)[0]()",
    ],
)
def test_what_the_training_needs_stays(capsys: pytest.CaptureFixture[str], tmp_path: Path, cell: str) -> None:
    """A function that also trains, a value that other code reads, a loop that counts."""
    text, left_out = made(capsys, tmp_path, cell)
    assert ([], cell) == (left_out, "\n".join(text.splitlines()[3:]))


def test_imports_from_the_future_come_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A notebook may have them in any cell, a script only at its beginning."""
    text, left_out = made(capsys, tmp_path, "x = 1", "from __future__ import print_function\ny = 2")
    assert ("from __future__ import print_function", []) == (text.splitlines()[1], left_out)


def test_what_a_script_may_not_have_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """IPython waits for it; Python would refuse the whole script on every node."""
    path = tmp_path / "mine.ipynb"
    path.write_bytes(notebook("x = await f()"))
    assert 0 == landfall(capsys, "lint", path)[0]
    status, out, _ = landfall(capsys, "script", "from-notebook", path)
    named = f"  to fix: {tmp_path / 'mine.py'}:4: not Python 3: 'await' outside function; put it into an async"
    assert (0, True) == (status, out.splitlines()[1].startswith(named)), out
    assert 2 == landfall(capsys, "lint", tmp_path / "mine.py")[0]


def test_the_script_has_the_findings_of_the_notebook(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The lint reads this script next."""
    path = tmp_path / "mine.ipynb"
    path.write_bytes(as_cells(FIT.replace("hvd.callbacks.BroadcastGlobalVariablesCallback(0),", "")))
    status, out, _ = landfall(capsys, "script", "from-notebook", path)
    script = tmp_path / "mine.py"
    assert (0, f"Wrote {script} from ", f"Next: landfall lint {script}") == (
        status,
        out.splitlines()[0][: len(f"Wrote {script} from ")],
        out.splitlines()[-1],
    )
    found = [json.loads(landfall(capsys, "lint", "--json", each)[1])["findings"] for each in (path, script)]
    assert [["no_initial_broadcast"]] * 2 == [[finding["code"] for finding in each] for each in found]
    assert ast.dump(ast.parse(script.read_text())) != ""


def test_a_script_that_exists_is_replaced_only_on_request(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It is then replaced as a whole: nothing else is left in the folder."""
    path, script = tmp_path / "mine.ipynb", tmp_path / "mine.py"
    path.write_bytes(notebook("x = 1"))
    script.write_text("mine")
    status, _, err = landfall(capsys, "script", "from-notebook", path)
    assert (1, True, "mine") == (status, "mine.py: exists already. Pass --overwrite" in err, script.read_text())
    assert 0 == landfall(capsys, "script", "from-notebook", path, "--overwrite")[0]
    assert script.read_text().endswith("x = 1\n")
    assert ["mine.ipynb", "mine.py"] == sorted(each.name for each in tmp_path.iterdir())
    assert 0 == landfall(capsys, "script", "from-notebook", path, "--to", tmp_path / "other.py")[0]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("mine.py", b"x = 1", "the name of a notebook ends in .ipynb. Pass one."),
        ("mine.ipynb", b"{}", "is JSON, but not a notebook"),
        ("mine.ipynb", notebook("print 1"), "mine.ipynb:cell 2:1: not Python 3"),
        ("mine.ipynb", None, "cannot be read: No such file"),
    ],
)
def test_what_is_no_notebook_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, content: bytes | None, words: str
) -> None:
    """The error has the thing, the problem and the fix, and no script is left."""
    if content is not None:
        (tmp_path / name).write_bytes(content)
    status, _, err = landfall(capsys, "script", "from-notebook", tmp_path / name, "--to", tmp_path / "out.py")
    assert (1, True, False) == (status, words in err, (tmp_path / "out.py").exists()), err
