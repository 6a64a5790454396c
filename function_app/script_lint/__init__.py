"""What a Horovod script gets wrong, told by reading its syntax tree: for the command line and for submissions."""

from __future__ import annotations

from function_app.errors import ScriptError
from function_app.script_files import MAX_SCRIPT_BYTES
from function_app.script_lint.findings import Finding, LintReport
from function_app.script_lint.lint import lint_script
from function_app.script_lint.rules import RULES, Rule, RuleCode, Severity
from function_app.script_lint.source import MAX_DEPTH
from function_app.script_lint.view import Machine

__all__ = [
    "MAX_DEPTH",
    "MAX_SCRIPT_BYTES",
    "RULES",
    "Finding",
    "LintReport",
    "Machine",
    "Rule",
    "RuleCode",
    "ScriptError",
    "Severity",
    "lint_script",
]
