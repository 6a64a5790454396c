"""Stand-ins for `az` and `azd` on PATH, which record their calls and answer as a subscription would."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

PROGRAM = """#!{python} -IS
import json, pathlib, sys
folder = pathlib.Path({folder!r})
call = [{name!r}, *sys.argv[1:]]
calls = folder / "calls.jsonl"
with calls.open("a") as file:
    file.write(json.dumps(call) + "\\n")
number = len(calls.read_text().splitlines())
plan = json.loads((folder / "plan.json").read_text())
if number == plan["fails_at"]:
    sys.exit("ERROR: (Refused) call " + str(number))
if call[:3] == ["azd", "env", "set"]:
    (folder / "environment.json").write_text(
        json.dumps(json.loads((folder / "environment.json").read_text()) | {{call[3]: call[4]}})
    )
line = " ".join(call)
for start, answer in plan["answers"].items():
    if line.startswith(start) or (start.startswith("*") and start[1:] in line):
        print(json.dumps(answer))
        sys.exit(0)
if call[:3] == ["az", "acr", "build"]:
    plan["answers"] |= plan["after_build"]
    (folder / "plan.json").write_text(json.dumps(plan))
"""


class AzurePrograms:
    """A folder with both programs, their answers and their recorded calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan: dict[str, Any] = {"fails_at": 0, "answers": {}, "after_build": {}}
        for name in ("az", "azd"):
            program = folder / name
            program.write_text(PROGRAM.format(python=sys.executable, folder=str(folder), name=name))
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.forget()
        self.answer()
        self.environment: dict[str, str] = {}

    @property
    def path(self) -> str:
        """PATH with both programs first."""
        return f"{self.folder}{os.pathsep}{os.environ['PATH']}"

    def answer(self, **plan: Any) -> None:
        """Change the answers: ``answers``, ``after_build``, or ``fails_at``, the number of the call that fails."""
        self.plan |= plan
        (self.folder / "plan.json").write_text(json.dumps(self.plan))

    def forget(self) -> None:
        """Delete the recorded calls."""
        (self.folder / "calls.jsonl").write_text("")

    @property
    def calls(self) -> list[list[str]]:
        """The calls of both programs, in order."""
        return [json.loads(line) for line in (self.folder / "calls.jsonl").read_text().splitlines()]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of azd."""
        return dict(json.loads((self.folder / "environment.json").read_text()))

    @environment.setter
    def environment(self, values: dict[str, str]) -> None:
        (self.folder / "environment.json").write_text(json.dumps(values))
