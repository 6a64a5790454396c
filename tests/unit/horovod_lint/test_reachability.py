"""What nothing in a script calls is not judged: it is a module of somebody else's."""

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
def test_what_the_script_may_call_is_judged(script: str) -> None:
    """Directly, through others, by a library, or as an entry point."""
    assert ["written_by_every_rank"] == found(script)


@pytest.mark.parametrize("script", [DEFINED, IN_CLASS, f"{DEFINED}def other():\n    keep()\n"])
def test_what_it_never_calls_is_not(script: str) -> None:
    """Whoever imports it may call it on the root alone."""
    assert [] == found(script)


def test_a_module_that_others_import_needs_no_init() -> None:
    """Who calls its functions has initialised."""
    assert [] == found("import horovod.tensorflow as hvd\ndef share(x):\n    return x[hvd.rank()::hvd.size()]\n")
