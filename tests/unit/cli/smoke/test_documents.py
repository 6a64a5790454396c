"""The page that lists what only a subscription shows names every line of the smoke test and of the doctor."""

from __future__ import annotations

import re

from cli.smoke.assertions import ASSERTIONS
from cli.smoke.gpu import GPU_ASSERTION
from tests.support.processes import REPOSITORY

PAGE = (REPOSITORY / "docs" / "azure.md").read_text(encoding="utf-8")
DOCTOR = PAGE.partition("## What `landfall doctor` shows")[2].partition("\n## ")[0]
SECTION = PAGE.partition("## What the smoke test shows")[2].partition("\n## ")[0]


def test_the_page_has_a_row_for_each_assertion() -> None:
    """The rows have the order of the assertions."""
    names = [assertion.name for assertion in (*ASSERTIONS[:-1], GPU_ASSERTION, ASSERTIONS[-1])]
    assert names == re.findall(r"^\| `(\w+)`", SECTION, re.MULTILINE)


def test_the_page_has_a_row_for_each_part_that_the_doctor_looks_at() -> None:
    """By the words that its lines begin with, wherever the code states them; `quota` is a line of the twin only."""
    sources = [*(REPOSITORY / "cli" / "doctor").glob("*.py"), REPOSITORY / "function_app" / "explain" / "doctor.py"]
    sources.append(REPOSITORY / "function_app" / "adapters" / "probes.py")
    code = "".join(path.read_text(encoding="utf-8") for path in sources)
    stated = set(re.findall(r'(?:part=|_asked\()"([a-z -]+)"', code))
    assert len(stated) > 10
    cells = re.findall(r"^\| (`[^|]+) \|", DOCTOR, re.MULTILINE)
    assert stated | {"code", "image"} == {word for cell in cells for word in re.findall(r"`([a-z -]+)`", cell)}


def test_what_only_a_subscription_shows_has_its_assertion_or_is_said_to_have_none() -> None:
    """Each row of the page's tables whose last column says something."""
    rows = [line.split(" | ") for line in PAGE.splitlines() if re.match(r"\| [ABC]\d+\.", line)]
    wanted = {row[0].removeprefix("| ").partition(".")[0] for row in rows if row[-1].strip(" |")}
    assert len(wanted) > 10
    assert set() == wanted - set(re.findall(r"\b[ABC]\d+\b", DOCTOR + SECTION))
