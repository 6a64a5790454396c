"""docs/lint.md and docs/rules.md match the rules and limits in the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from horovod_lint import (
    FIXABLE,
    MAX_DEPTH,
    MAX_SCRIPT_BYTES,
    RULES,
    LintReport,
    Machine,
    RuleCode,
    fix_script,
    lint_script,
)

DOCS = Path(__file__).parents[3] / "docs"
TEXT = (DOCS / "lint.md").read_text(encoding="utf-8")
PAGE = (DOCS / "rules.md").read_text(encoding="utf-8")
SECTIONS = {section.partition("\n")[0]: section for section in PAGE.split("\n## ")[1:]}
INFINIBAND = "Standard_ND96asr_v4"
MAX_LINES = 17


def test_every_code_is_in_the_table_with_severity_and_meaning() -> None:
    """The table has no other rows."""
    section = TEXT.partition("\n## Rules\n")[2].partition("\n## ")[0]
    rows = [tuple(row) for row in re.findall(r"^\| `(\w+)` \| (\w+) \| (.*) \|$", section, re.MULTILINE)]
    assert [(str(code), str(rule.severity), rule.what) for code, rule in RULES.items()] == rows


def test_every_code_has_a_rule() -> None:
    """Each rule has its texts."""
    assert set(RuleCode) == set(RULES)


def test_the_limits_are_stated() -> None:
    """The limits of a script's size and nesting are documented."""
    assert f"{MAX_SCRIPT_BYTES >> 10} KiB" in TEXT
    assert f"{MAX_DEPTH} levels" in TEXT


def linted(code: str, script: str) -> LintReport:
    """Lint an example where its rule applies."""
    return lint_script(script.encode(), "example.py", machine_of(code))


def machine_of(code: str) -> Machine:
    """Return a machine and a pipeline's settings to which a rule applies."""
    return Machine(
        vm_size=INFINIBAND,
        environment={} if code == "keras3_incompatible" else {"TF_USE_LEGACY_KERAS": "1"},
        words_of_runs=(("--data", "/data"),) if code == "arguments_not_taken" else (),
        registers=code == "report_not_written",
        distribution="pytorch" if code == "horovod_without_mpi" else "mpi",
    )


@pytest.mark.parametrize("code", RuleCode)
def test_each_rule_has_a_wrong_and_a_right_script(code: RuleCode) -> None:
    """The wrong one has the finding and no other, the right one none."""
    wrong, right = re.findall(r"^```python\n(.*?)^```", SECTIONS[code], re.MULTILINE | re.DOTALL)
    assert ("# wrong\n", "# right\n") == (wrong[:8], right[:8])
    assert [code] == [finding.code for finding in linted(code, wrong).findings]
    assert () == linted(code, right).findings
    assert f"\n\n{RULES[code].what} {RULES[code].why}" in SECTIONS[code]


def test_the_page_has_no_other_rules() -> None:
    """They are in the order of the table."""
    assert list(RuleCode) == list(SECTIONS)


@pytest.mark.parametrize("code", sorted(FIXABLE))
def test_the_wrong_script_of_a_mechanical_rule_is_corrected(code: RuleCode) -> None:
    """`landfall lint --fix` does the same; the rule's finding is gone, and there is no new one."""
    wrong = re.findall(r"^```python\n(.*?)^```", SECTIONS[code], re.MULTILINE | re.DOTALL)[0]
    fixed = fix_script(wrong.encode(), "example.py", machine_of(code))
    assert ([code], ()) == ([f.code for f in fixed.findings], linted(code, fixed.content.decode()).findings)


@pytest.mark.parametrize("code", RuleCode)
def test_the_scripts_of_a_rule_are_short(code: RuleCode) -> None:
    """About ten lines, so that the difference between them is seen."""
    scripts = re.findall(r"^```python\n(.*?)^```", SECTIONS[code], re.MULTILINE | re.DOTALL)
    assert max(len(script.splitlines()) for script in scripts) <= MAX_LINES
