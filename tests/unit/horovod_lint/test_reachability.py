"""Functions that a script does not call are not checked."""

from __future__ import annotations

import pytest

from tests.unit.horovod_lint.scripts import found

HVD = "import horovod.tensorflow as hvd\nhvd.init()\n"
DEFINED = f'{HVD}def keep():\n    open("a", "w")\n'
IN_CLASS = f"""{HVD}
class Keeper:
    def __init__(self):
        self.write()
    def write(self):
        open("a", "w")
"""


@pytest.mark.parametrize(
    "script",
    [
        f"{DEFINED}keep()\n",
        f"{DEFINED}if __name__ == '__main__':\n    keep()\n",
        f"{DEFINED}def other():\n    keep()\nother()\n",
        f"{DEFINED}import atexit\natexit.register(keep)\n",
        f"{DEFINED}import fire\nfire.Fire()\n",
        DEFINED.replace("def keep", "import click\n@click.command()\ndef keep"),
        DEFINED.replace("keep", "main"),
        f"{IN_CLASS}Keeper()\n",
        f"{DEFINED}from absl import app\napp.run(keep)\n",
    ],
)
def test_functions_that_the_script_may_call_are_checked(script: str) -> None:
    """Called directly, through others, by a library, or as an entry point."""
    assert ["written_by_every_rank"] == found(script)


@pytest.mark.parametrize("script", [DEFINED, IN_CLASS, f"{DEFINED}def other():\n    keep()\n"])
def test_functions_that_it_never_calls_are_not_checked(script: str) -> None:
    """An importing module may call them on the root only."""
    assert [] == found(script)


def test_a_module_that_others_import_needs_no_init() -> None:
    """The importing script initialises Horovod."""
    assert [] == found("import horovod.tensorflow as hvd\ndef share(x):\n    return x[hvd.rank()::hvd.size()]\n")
