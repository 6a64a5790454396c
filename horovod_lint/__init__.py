"""Lint for Horovod training scripts: finds mistakes in the syntax tree without running the script.

The command line and submissions use it. Of this project, it imports only ``shared``.
"""

from __future__ import annotations

from horovod_lint.findings import Finding, LintReport
from horovod_lint.fixes import FIXABLE, fix_script
from horovod_lint.linking import OTHERS_CODE, ScriptFile, refused_modules, scripts_among
from horovod_lint.lint import lint_script
from horovod_lint.notebook import MAX_NOTEBOOK_BYTES, NOTEBOOK_SUFFIX
from horovod_lint.notebook_edits import cell_texts
from horovod_lint.rules import RULES, Rule, RuleCode, Severity
from horovod_lint.script import MAX_DEPTH, MAX_SCRIPT_BYTES, ScriptError
from horovod_lint.view import Machine

__all__ = [
    "FIXABLE",
    "MAX_DEPTH",
    "MAX_NOTEBOOK_BYTES",
    "MAX_SCRIPT_BYTES",
    "NOTEBOOK_SUFFIX",
    "OTHERS_CODE",
    "RULES",
    "Finding",
    "LintReport",
    "Machine",
    "Rule",
    "RuleCode",
    "ScriptError",
    "ScriptFile",
    "Severity",
    "cell_texts",
    "fix_script",
    "lint_script",
    "refused_modules",
    "scripts_among",
]
