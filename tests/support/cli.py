"""The command line in this process, as a user runs it."""

from __future__ import annotations

import pytest

from cli.main import main


def landfall(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int | str | None, str, str]:
    """Run a command line; return exit status, output and error output."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return ended.value.code, said.out, said.err
