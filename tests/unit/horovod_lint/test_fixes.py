"""Correcting: the smallest edits, after which the finding is gone, no other has come, and the rest is as it was."""

from __future__ import annotations

import difflib

import pytest

from horovod_lint import FIXABLE, Machine, fix_script, lint_script
from tests.unit.horovod_lint.scripts import FIT, TAPE, TORCH, spoilt
from tests.unit.horovod_lint.test_rules import SECTIONS

KERAS2 = Machine(environment={"TF_USE_LEGACY_KERAS": "1"})
START = "import horovod.tensorflow.keras as hvd\nhvd.init()\n"
PLAIN = "import horovod.tensorflow as hvd\nimport keras\nhvd.init()\n"


def corrected(script: str) -> list[str]:
    """Correct a script; return the lines that changed, with + and -, and check the rest."""
    fixed = fix_script(script.encode(), "mine.py", KERAS2)
    after = fixed.content.decode()
    codes = [finding.code for finding in lint_script(script.encode(), "mine.py", KERAS2).findings]
    left = [finding.code for finding in lint_script(fixed.content, "mine.py", KERAS2).findings]
    assert sorted(codes) == sorted([*left, *(finding.code for finding in fixed.findings)])
    assert fixed == type(fixed)(content=fix_script(fixed.content, "mine.py", KERAS2).content, findings=fixed.findings)
    return [line for line in difflib.ndiff(script.split("\n"), after.split("\n")) if line[0] in "+-"]


@pytest.mark.parametrize(
    ("script", "old", "new"),
    [
        (FIT, "hvd.init()\n", ""),
        (FIT, "gpus[hvd.local_rank()]", "gpus[ hvd.rank() ]"),
        (FIT, "optimizer = hvd.DistributedOptimizer(optimizer)\n", ""),
        (FIT, "    hvd.callbacks.BroadcastGlobalVariablesCallback(0),\n", ""),
        (FIT, "epochs=10,", "epochs=(10 + 2)  //  hvd.size(),  # ä"),
        (FIT, "50000 // 32 // hvd.size()", "50000 // (batch_size := 32)"),
        (FIT, 'if hvd.rank() == 0:\n    model.save("outputs/final', 'model.save(  # ä\n\t"outputs/final'),
        (FIT, "hvd.init()\n", "hvd.init()  # landfall: ignore[epochs_divided] no\n"),
        (FIT, "hvd.init()\n", "hvd.init()\n# landfall: ignore\nx = 1\n"),
        (TAPE, "dataset.shard(hvd.size(), hvd.rank())", "dataset.shard(hvd.size(), hvd.local_rank())"),
        (TAPE, "dataset.shard(hvd.size(), hvd.rank())", "dataset.shard(num_shards=hvd.size(), index=0)"),
        (TORCH, "if hvd.rank() == 0:\n    torch.save", "torch.save"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_mechanical_mistake_is_corrected(script: str, old: str, new: str, newline: str) -> None:
    """The script is then as clean as before the mistake, and every other line is the same, byte for byte."""
    wrong = spoilt(script, (old, new)).replace("\n", newline)
    before = lint_script(script.encode(), "mine.py", KERAS2).findings
    fixed = fix_script(wrong.encode(), "mine.py", KERAS2)
    assert [f.code for f in before] == [f.code for f in lint_script(fixed.content, "mine.py", KERAS2).findings]
    assert 1 == len(fixed.findings)
    changes = difflib.ndiff(wrong.split("\n"), fixed.content.decode().split("\n"))
    changed = [line for line in changes if line[0] in "+-"]
    assert len(changed) <= 5
    assert fixed.content.count(b"\n") - fixed.content.count(b"\r\n") == (
        0 if newline == "\r\n" else fixed.content.count(b"\n")
    )


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("import horovod.torch as hvd\nimport os\nprint(hvd.rank())\nhvd.init()",
         ["+ hvd.init()", "- hvd.init()"]),
        ("def f():\n    import horovod.torch as hvd  # a\n    return hvd.rank()\nf()", ["+     hvd.init()"]),
        (f"{START}epochs = int(math.ceil(12.0 / hvd.size()))",
         ["- epochs = int(math.ceil(12.0 / hvd.size()))", "+ epochs = int(math.ceil(12.0))"]),
        (f"{START}ä = 'ü'; epochs = (3 + 4) // (hvd.size())",
         ["- ä = 'ü'; epochs = (3 + 4) // (hvd.size())", "+ ä = 'ü'; epochs = (3 + 4)"]),
        (f"{START}for x in y:\n\tmodel.save('a',\n\t  b)", ["- \tmodel.save('a',", "+ \tif hvd.rank() == 0:",
         "+ \t\tmodel.save('a',", "- \t  b)", "+ \t\t  b)"]),
    ],
)  # fmt: skip
def test_the_edit_is_the_smallest(script: str, expected: list[str]) -> None:
    """Comments, indents, quotes and other characters stay."""
    assert sorted(expected) == sorted(line for line in corrected(script) if not line.startswith("? "))


@pytest.mark.parametrize(
    "script",
    [
        "from horovod.torch import rank\nprint(rank())",
        "try:\n    import horovod.torch as hvd\nexcept ImportError:\n    hvd = None\nprint(hvd.rank())",
        f"{START}model.save('''a\nb''')",
        f"{START}x = model.save('a')",
        f"{START}a = 1; model.save('a')",
        f"{START}epochs = 10\nepochs //= hvd.size()",
        f"{START}model.compile(optimizer='adam')\nmodel.fit(x)",
        f"{PLAIN}model.compile(optimizer=keras.optimizers.SGD(1))\nmodel.fit(x, callbacks=[])",
        f"{START}if hvd.rank() == 0:\n    hvd.allreduce(1)",
        f"{START}model.save('a')\rx = 1\n",
    ],
)
def test_what_is_not_mechanical_stays(script: str) -> None:
    """No edit is better than one that may be wrong; a lone carriage return makes lines ambiguous."""
    content = script.encode()
    fixed = fix_script(content, "mine.py", KERAS2)
    assert (content, ()) == (fixed.content, fixed.findings)


def test_an_edit_that_would_make_another_finding_is_not_made() -> None:
    """On Keras 3, Horovod's optimizer and its callbacks are wrong themselves."""
    script = spoilt(
        FIT, ('os.environ["TF_USE_LEGACY_KERAS"] = "1"\n', ""), ("hvd.DistributedOptimizer(optimizer)", "optimizer")
    )
    script = script.replace("hvd.callbacks.BroadcastGlobalVariablesCallback(0),", "").replace(
        "average = hvd.callbacks.MetricAverageCallback()\naverage.backend = tf.keras.backend\n", ""
    )
    assert script == fix_script(script.encode(), "mine.py").content.decode()
    broken = (  # already wrong on Keras 3; an edit may not make it more so
        f"{START}import tensorflow as tf\nmodel.compile(optimizer=tf.keras.optimizers.SGD(1))\n"
        "model.fit(x, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])\n"
    )
    assert broken == fix_script(broken.encode(), "mine.py").content.decode()
    assert broken != fix_script(broken.encode(), "mine.py", KERAS2).content.decode()


def test_several_mistakes_are_corrected_together() -> None:
    """Fixing stops when no finding is left that an edit can fix."""
    wrong = spoilt(
        FIT,
        ("hvd.init()\n", ""),
        ("hvd.local_rank()", "hvd.rank()"),
        ("optimizer = hvd.DistributedOptimizer(optimizer)\n", ""),
        ("if hvd.rank() == 0:\n    model.save", "model.save"),
        ("epochs=10", "epochs=10 // hvd.size()"),
    )
    fixed = fix_script(wrong.encode(), "mine.py")
    assert (5, ()) == (len(fixed.findings), lint_script(fixed.content, "mine.py").findings)


@pytest.mark.parametrize("prefix", ["# coding: latin-1\n# ä\n".encode("latin-1"), b"\xef\xbb\xbf# \xc3\xa4\n"])
def test_the_encoding_stays(prefix: bytes) -> None:
    """A byte order mark stays, too."""
    wrong = prefix + f"{START}epochs = 3 // hvd.size()\n".encode()
    assert prefix + f"{START}epochs = 3\n".encode() == fix_script(wrong, "mine.py").content


def test_the_page_says_what_is_corrected() -> None:
    """Each rule's section, and no other."""
    said = {code for code, section in SECTIONS.items() if "`--fix` corrects it" in section}
    assert set(map(str, FIXABLE)) == said
