"""What is only partly looked at."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from horovod_lint.findings import Finding
from horovod_lint.rules import RuleCode
from horovod_lint.view import View

_OTHERS = ("torch", "mxnet", "spark", "ray")


def check(view: View) -> Iterator[Finding]:
    """Say where Horovod is used for PyTorch or MXNet, or starts ranks itself."""
    for node in view.script.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            text = ast.unparse(node)
            found = [name for name in _OTHERS if f"horovod.{name}" in text or f"from horovod import {name}" in text]
            if found:
                yield view.finding(RuleCode.FRAMEWORK_PARTLY_CHECKED, node, f"the script uses horovod.{found[0]}")
                return
