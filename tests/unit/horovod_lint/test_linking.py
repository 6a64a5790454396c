"""Several files: names are followed into the modules that are given, and no further."""

from __future__ import annotations

from pathlib import PurePath, PurePosixPath

import pytest

from horovod_lint import LintReport, ScriptError, ScriptFile, lint_script, scripts_among
from horovod_lint.linking import MAX_LINKED_BYTES

ROOT = PurePosixPath("/project")
TRAIN = """import os
os.environ["TF_USE_LEGACY_KERAS"] = "1"
import tensorflow as tf
import horovod.tensorflow.keras as hvd
{imports}
hvd.init()
tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[hvd.local_rank()], "GPU")
x, y = tf.keras.datasets.mnist.load_data()[0]
x, y = x[hvd.rank()::hvd.size()], y[hvd.rank()::hvd.size()]
model = tf.keras.Sequential([tf.keras.layers.Dense(10)])
model.compile(optimizer={optimizer}, loss="mse")
model.fit(x, y, steps_per_epoch=100, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
"""
MODULE = """import tensorflow as tf
import horovod.tensorflow.keras as hvd

def build(rate=0.1):
    return {returned}
"""
PLAIN = MODULE.format(returned="tf.keras.optimizers.RMSprop(rate * hvd.size())")
WRAPPED = MODULE.format(returned="hvd.DistributedOptimizer(tf.keras.optimizers.RMSprop(rate * hvd.size()))")


def script_files(**texts: str) -> dict[PurePath, ScriptFile]:
    """Return files by the paths at which imports find them; two underscores stand for a folder."""
    files: dict[PurePath, ScriptFile] = {}
    for name, text in texts.items():
        path = ROOT / f"{name.replace('__', '/')}.py".replace("/init", "/__init__")
        files[path] = ScriptFile(path=path, name=str(path.relative_to(ROOT)), content=text.encode())
    return files


def linted(**texts: str) -> LintReport:
    """Lint ``train`` with the other files."""
    files = script_files(**texts)
    path = ROOT / "train.py"
    return lint_script(files[path].content, "train.py", path=path, files=files)


def codes(**texts: str) -> list[str]:
    """Return the codes of the findings."""
    return [str(finding.code) for finding in linted(**texts).findings]


IMPORTS = [
    ("from helper import build", "build()"),
    ("from helper import build as make", "make()"),
    ("import helper", "helper.build()"),
    ("import helper as h", "h.build()"),
    ("from helper import *", "build()"),
    ("optimizer = None\ndef choose():\n    from helper import build\n    return build()", "choose()"),
]


@pytest.mark.parametrize(("imports", "optimizer"), IMPORTS)
def test_the_optimizer_of_the_module_next_to_the_script_counts(imports: str, optimizer: str) -> None:
    """Wrapped there it is right, plain it is wrong, however the module is imported."""
    train = TRAIN.format(imports=imports, optimizer=optimizer)
    assert [] == codes(train=train, helper=WRAPPED)
    assert ["optimizer_not_distributed"] == codes(train=train, helper=PLAIN)
    assert [] == codes(train=train, other=PLAIN)  # what is not given is assumed correct


PACKAGES: list[tuple[str, str, dict[str, str]]] = [
    ("from pkg.helper import build", "build()", {"pkg__helper": "MODULE"}),
    ("import pkg.helper", "pkg.helper.build()", {"pkg__helper": "MODULE"}),
    ("from pkg import helper", "helper.build()", {"pkg__init": "", "pkg__helper": "MODULE"}),
    ("from pkg import build", "build()", {"pkg__init": "from .helper import build", "pkg__helper": "MODULE"}),
    ("from pkg import build", "build()", {"pkg__init": "from pkg.helper import build", "pkg__helper": "MODULE"}),
    ("import pkg", "pkg.make()", {"pkg__init": "from .a.b import build as make", "pkg__a__b": "MODULE"}),
    ("from pkg.a.b import make", "make()", {"pkg__a__b": "from ..c import build as make", "pkg__c": "MODULE"}),
    ("from a import make", "make()", {"a": "from b import *\ndef make():\n    return build()", "b": "MODULE"}),
]


@pytest.mark.parametrize(("imports", "optimizer", "modules"), PACKAGES)
def test_packages_and_modules_behind_modules(imports: str, optimizer: str, modules: dict[str, str]) -> None:
    """Relative imports, packages with and without a file of their own, names that are passed on."""
    train = TRAIN.format(imports=imports, optimizer=optimizer)
    for text, expected in ((WRAPPED, []), (PLAIN, ["optimizer_not_distributed"])):
        assert expected == codes(train=train, **{name: m.replace("MODULE", text) for name, m in modules.items()})


def test_a_library_that_a_module_imports_is_known_under_its_name_there() -> None:
    """`from common import hvd` is Horovod."""
    common = "import horovod.tensorflow.keras as hvd\nfrom tensorflow.keras.optimizers import SGD as Plain\n"
    train = TRAIN.replace("import horovod.tensorflow.keras as hvd", "from common import hvd, Plain")
    assert [] == codes(
        train=train.format(imports="", optimizer="hvd.DistributedOptimizer(Plain(hvd.size()))"), common=common
    )
    assert ["optimizer_not_distributed"] == codes(
        train=train.format(imports="", optimizer="Plain(0.1)"), common=common
    )


def test_names_of_two_files_are_kept_apart() -> None:
    """A function of the same name in another module, a local variable, and a method are other things."""
    train = TRAIN.format(
        imports="from helper import build\nimport other\ndef unused(other, build=1):\n    return other.build(build)",
        optimizer="build()",
    )
    assert [] == codes(train=train, helper=WRAPPED, other=PLAIN)
    assert ["optimizer_not_distributed"] == codes(train=train, helper=PLAIN, other=WRAPPED)
    both = TRAIN.format(imports="import helper\ndef build():\n    return 'adam'", optimizer="helper.build()")
    assert [] == codes(train=both, helper=WRAPPED)
    shared = (
        "rate = 0.1\nclass Maker:\n    rate = 0.2\n    def build(self):\n        global rate\n        rate = 1\n"
        + PLAIN
    )
    assert ["optimizer_not_distributed"] == codes(
        train=TRAIN.format(imports="rate = 2\nimport helper", optimizer="helper.build(rate)"), helper=shared
    )


def test_a_finding_in_a_module_names_its_file_and_line() -> None:
    """Comments there suppress it, and messages name the place."""
    helper = "import horovod.tensorflow as hvd\n\ndef finish(model):\n    model.save('x'){comment}\n"
    train = TRAIN.format(imports="from helper import finish", optimizer="hvd.DistributedOptimizer('adam')")
    found = linted(train=f"{train}finish(model)\n", helper=helper.format(comment="")).findings
    assert [("written_by_every_rank", "helper.py", 4)] == [(str(f.code), f.file, f.line) for f in found]
    assert "helper.py" == found[0].to_json()["file"]
    ignored = helper.format(comment="  # landfall: ignore[written_by_every_rank] the node's own disk")
    assert [] == codes(train=f"{train}finish(model)\n", helper=ignored)
    assert [] == codes(train=f"{train}if hvd.rank() == 0:\n    finish(model)\n", helper=helper.format(comment=""))
    early = linted(train="from helper import hvd\nhvd.init()\n", helper="import horovod.torch as hvd\nhvd.size()\n")
    message = next(f.message for f in early.findings if f.code == "used_before_init")
    assert message == "size is called before hvd.init(), which is on line 2"


def test_what_a_module_does_as_a_script_does_not_count() -> None:
    """Python does not run it at the import."""
    helper = f"{WRAPPED}if __name__ == '__main__':\n    hvd.init()\n    open('x', 'w')\nelse:\n    z = 1\n"
    train = TRAIN.format(imports="from helper import build", optimizer="build()")
    assert [] == codes(train=train, helper=helper)
    assert ["written_by_every_rank"] == codes(train=train, helper=helper.replace("'__main__'", "'helper'"))


@pytest.mark.parametrize(
    "modules",
    [
        {"helper": "import other\n" + WRAPPED, "other": "import helper\nimport train\nx = helper.build"},
        {"helper": "from helper import build\n" + WRAPPED},
        {"helper": "from other import *\n" + WRAPPED, "other": "from helper import *\nfrom train import *"},
        {"helper": "from other import a\n" + WRAPPED, "other": "from helper import a"},
        {"helper": "import helper.helper.build\nfrom . import helper\nfrom .... import x\n" + WRAPPED},
    ],
)
def test_modules_that_import_each_other_end(modules: dict[str, str]) -> None:
    """Each is read once."""
    assert [] == codes(train=TRAIN.format(imports="from helper import build", optimizer="build()"), **modules)


def test_a_module_that_is_no_python_is_assumed_correct() -> None:
    """Its own error is reported where it is linted itself."""
    train = TRAIN.format(imports="from helper import build\nimport other", optimizer="build(other.x)")
    assert [] == codes(train=train, helper="print 1", other="\0")


def test_modules_are_read_with_the_scripts_that_import_them() -> None:
    """A script is what no file imports, what tests for `__main__`, or the first of a circle."""
    main = "if '__main__' == __name__:\n    pass\n"
    files = script_files(
        train="import a, sub.b",
        sweep="import train",
        a=f"import c\n{main}",
        sub__b="",
        c="",
        d="import e",
        e="import d",
    )
    assert ["sweep.py", "a.py", "d.py"] == [files[path].name for path in scripts_among(files)]
    broken = script_files(train="import a", a="print 1")
    assert ["train.py", "a.py"] == [broken[path].name for path in scripts_among(broken)]


def test_the_size_of_what_is_linked_is_bounded() -> None:
    """The error names the script and what to do."""
    modules = {f"m{number}": "#" * (MAX_LINKED_BYTES // 5) for number in range(6)}
    with pytest.raises(ScriptError, match=r"train\.py: the script and the modules that it imports have more than"):
        linted(train="".join(f"import {name}\n" for name in modules), **modules)


def test_a_notebook_may_import_modules_too() -> None:
    """They count as they do for a script."""
    text = (
        TRAIN.format(imports="from helper import build", optimizer="build()").replace('"', '\\"').replace("\n", "\\n")
    )
    content = f'{{"nbformat": 4, "metadata": {{}}, "cells": [{{"cell_type": "code", "source": "{text}"}}]}}'.encode()
    report = lint_script(content, "x.ipynb", path=ROOT / "x.ipynb", files=script_files(helper=PLAIN))
    assert [("optimizer_not_distributed", 1, "")] == [(str(f.code), f.cell, f.file) for f in report.findings]
