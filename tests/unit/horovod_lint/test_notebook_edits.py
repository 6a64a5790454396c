"""Correcting notebooks: their cells are corrected as a script is, and every other byte of the file stays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from horovod_lint import Machine, ScriptError, cell_texts, fix_script, lint_script
from horovod_lint.notebook_edits import with_cells
from tests.unit.horovod_lint.scripts import FIT, spoilt
from tests.unit.horovod_lint.test_notebook import as_cells, notebook

KERAS2 = Machine(environment={"TF_USE_LEGACY_KERAS": "1"})
HVD = "import horovod.tensorflow.keras as hvd\nhvd.init()"
IMAGE = {
    "output_type": "display_data",
    "data": {"image/png": "iVBORw0KGgo=\\n", "source": ["no cell"]},
    "metadata": {},
}


def fixed(content: bytes) -> bytes:
    """Return a notebook after its mechanical findings were corrected."""
    return fix_script(content, "mine.ipynb", KERAS2).content


def jupyter(*cells: str, **written: Any) -> str:
    """Return a notebook as Jupyter writes it, with outputs, between text cells."""
    members = json.loads(notebook(*cells))
    for cell in members["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = [IMAGE, {"output_type": "stream", "text": ["é 0.10 \\u001b[31m"]}]
    return json.dumps(members, **{"indent": 1, "ensure_ascii": False, **written}) + "\n"


@pytest.mark.parametrize(
    "written", [{}, {"indent": None}, {"indent": "\t", "ensure_ascii": True}, {"indent": 4, "sort_keys": True}]
)
def test_every_other_byte_stays(written: dict[str, Any]) -> None:
    """The format of the file does not matter: only the changed lines of code differ."""
    wrong = jupyter(HVD, "print('ö')\nepochs = 3 // hvd.size()\nrun(epochs)", "model.save('m')\n", **written)
    right = wrong.replace("3 // hvd.size()", "3")
    old = next(line for line in right.replace(", ", ",\n").split("\n") if "model.save" in line)
    after = fixed(wrong.encode()).decode()
    assert json.loads(after)["cells"][5]["source"] == ["if hvd.rank() == 0:\n", "    model.save('m')\n"]
    assert len(right.split(old.strip().rstrip(","))) == 2
    head, tail = right.split("model.save(")
    assert after.startswith(head[: head.rindex('"')])
    assert after.endswith(tail)


def test_all_lines_of_a_cell_but_the_changed_one_keep_their_spelling() -> None:
    """Escapes that another writer would spell otherwise, and blanks within the list."""
    first = '["import horovod.tensorflow as hvd\\n" ,  "hvd.init();x=\\u0027\\u00e9\\/\\u0027\\n" ,  '
    source = first + '"e = 1\\nepochs = 3 // hvd.size()"]'
    wrong = '{"nbformat": 4,\n"cells":[ {"cell_type":"code" , "source" :' + source + ', "n": 1e400}\n]\n}'
    right = wrong.replace('"e = 1\\nepochs = 3 // hvd.size()"', '"e = 1\\n" ,  "epochs = 3"')
    assert right == fixed(wrong.encode()).decode()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"import horovod.torch as hvd\\nhvd.init()\\nepochs = 3 // hvd.size()"',
         '"import horovod.torch as hvd\\nhvd.init()\\nepochs = 3"'),
        ('["import horovod.torch as hvd"]', '["import horovod.torch as hvd"]'),
        ('["import horovod.torch as hvd; hvd.init(); epochs = 3 // hvd.size()"]',
         '["import horovod.torch as hvd; hvd.init(); epochs = 3"]'),
        ('[\n  "import horovod.torch as hvd; r = hvd.rank()"\n]',
         '[\n  "import horovod.torch as hvd; r = hvd.rank()"\n]'),
        ('[\n  "if 1:\\n  import horovod.torch as hvd\\nprint(hvd.rank())"\n]',
         '[\n  "if 1:\\n  import horovod.torch as hvd\\nprint(hvd.rank())"\n]'),
        ('[\n  "import horovod.torch as hvd\\n",\n  "r = hvd.rank()"\n]',
         '[\n  "import horovod.torch as hvd\\n",\n  "hvd.init()\\n",\n  "r = hvd.rank()"\n]'),
    ],
)  # fmt: skip
@pytest.mark.parametrize("oldest", [False, True])
def test_a_cell_may_be_one_text_or_a_list_of_lines(source: str, expected: str, oldest: bool) -> None:  # noqa: FBT001
    """This includes format 3, whose cells are in worksheets under another name."""
    wrong = f'{{"nbformat": 4, "cells": [{{"cell_type": "code", "source": {source}}}]}}'
    if oldest:
        wrong = wrong.replace('"nbformat": 4, "cells": [', '"nbformat":3,"worksheets":[{"cells":[').replace(
            "source", "input"
        )
        wrong = f"{wrong[:-1]}}}]}}"
    assert wrong.replace(source, expected) == fixed(wrong.encode()).decode()


def test_a_notebook_that_waits_outside_of_functions_is_corrected_too() -> None:
    """IPython allows it, and a script may not have it."""
    content = notebook(f"await f()\n{HVD}", "x = 1\nfrom __future__ import division\nepochs = 3 // hvd.size()")
    corrected = fix_script(content, "mine.ipynb", KERAS2)
    assert ["epochs_divided"] == [each.code for each in corrected.findings]


def test_a_mistake_in_each_cell_is_corrected_in_its_cell() -> None:
    """The same script has the same corrections."""
    wrong = spoilt(
        FIT, ("hvd.init()\n", ""), ("hvd.local_rank()", "hvd.rank()"), ("epochs=10", "epochs=10 // hvd.size()")
    )
    content = as_cells(wrong)
    script, corrected = fix_script(wrong.encode(), "mine.py", KERAS2), fix_script(content, "mine.ipynb", KERAS2)
    assert [each.code for each in script.findings] == [each.code for each in corrected.findings]
    assert lint_script(corrected.content, "mine.ipynb", KERAS2).is_clean
    assert (
        "\n\n".join(cell_texts(corrected.content, "mine.ipynb").values()).split() == script.content.decode().split()
    )


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([f"!pip install x\n{HVD}\n%matplotlib inline", "%time epochs = 3 // hvd.size()"], None),
        ([f"%%time\n{HVD}", "%time x = 1\nepochs = 3 // hvd.size()"], [f"%%time\n{HVD}", "%time x = 1\nepochs = 3"]),
        (["import horovod.torch as hvd\nx = 1", "%env A=1\nhvd.rank()\nhvd.init()", "!ls"],
         ["import horovod.torch as hvd\nhvd.init()\nx = 1", "%env A=1\nhvd.rank()", "!ls"]),
        ([HVD, "a = 1\r\nepochs = 3 // hvd.size()"], [HVD, "a = 1\r\nepochs = 3"]),
        ([HVD, "epochs = 3 // hvd.size()\r\na = 1"], None),
        ([HVD, "a = 1\repochs = 3 // hvd.size()"], None),
        ([HVD, "%%bash\nls", "epochs = 3 // hvd.size()"], [HVD, "%%bash\nls", "epochs = 3"]),
    ],
)  # fmt: skip
def test_lines_of_ipython_stay_as_they_are(cells: list[str], expected: list[str] | None) -> None:
    """A finding on one is not corrected, and neither is one in a cell whose lines end otherwise."""
    content = notebook(*cells)
    after = fixed(content)
    assert (expected or cells) == list(cell_texts(after, "mine.ipynb").values())
    assert expected is not None or content == after


def test_a_comment_without_effect_at_the_end_of_a_cell_is_taken_out() -> None:
    """The first line of the next cell stays in that cell."""
    content = notebook(f"{HVD}\n# landfall: ignore\nx = 1", "!ls")
    assert [f"{HVD}\nx = 1", "!ls"] == list(cell_texts(fixed(content), "mine.ipynb").values())


def test_a_byte_order_mark_stays() -> None:
    """An encoding other than UTF-8 stays, too."""
    wrong = jupyter(HVD, "epochs = 3 // hvd.size()")
    for encoding in ("utf-8-sig", "utf-16"):
        assert wrong.replace("3 // hvd.size()", "3").encode(encoding) == fixed(wrong.encode(encoding))


def test_a_notebook_without_mistakes_is_the_same_file() -> None:
    """Not a single byte differs, and a cell may become empty."""
    content = as_cells(FIT)
    assert content == fixed(content)
    emptied = with_cells(notebook("x = 1", "y = 2"), "mine.ipynb", {2: ""})
    assert {2: "", 4: "y = 2"} == cell_texts(emptied, "mine.ipynb")


@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"nbformat": 4, "cells": {}}', b'{"nbformat": 4, "cells": [1]}' * 2]
)
def test_what_is_no_notebook_is_refused(content: bytes) -> None:
    """The lint refuses it in the same way."""
    with pytest.raises(ScriptError, match="not a notebook"):
        fixed(content)


def test_cells_that_are_none_and_keys_that_come_twice_are_left_as_they_are() -> None:
    """Python's JSON reader uses the last of two equal members; other tools wrote the rest."""
    code = '{"source": "print(1)", "cell_type": "code", "source": ["import horovod.torch as hvd\\n", "hvd.rank()"]}'
    wrong = (
        f'{{"cells": 3, "nbformat": 4, "x": [{{"source": 1}}, "}}]"], "cells": [ 1 , null, [{{}}], {{}}, {code} ]}}'
    )
    right = wrong.replace('"hvd.rank()"', '"hvd.init()\\n", "hvd.rank()"')
    assert right == fixed(wrong.encode()).decode()
