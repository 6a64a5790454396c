"""The job's arguments: a script that reads its command line has to take them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from horovod_lint.findings import Finding
from horovod_lint.rules import RuleCode
from horovod_lint.syntax import constant_of, keyword_of
from horovod_lint.view import View

_PARSER = "argparse.ArgumentParser"
_MAX_NAMED = 3


def check(view: View) -> Iterator[Finding]:
    """Find argparse parsers that end with 2 at the first argument of the job's; nothing where no job is in sight."""
    known = _options(view)
    if not view.machine.job_flags or known is None:
        return
    # argparse takes an unambiguous beginning for the whole
    missing = [flag for flag in view.machine.job_flags if not any(option.startswith(flag) for option in known)]
    for call in view.method_calls("parse_args"):
        if missing and _reads_the_command_line(view, call) and _is_plain_parser(view, call):
            more = f" and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
            message = f"the job passes {', '.join(missing[:_MAX_NAMED])}{more}, which this parser does not know"
            yield view.finding(RuleCode.ARGUMENTS_NOT_TAKEN, call, message)


def _options(view: View) -> set[str] | None:
    """Return every option that is added anywhere, None where one is named by something else than a text."""
    found: set[str] = set()
    for call in view.method_calls("add_argument"):
        names = [constant_of(argument) for argument in call.args]
        if not all(isinstance(name, str) for name in names):
            return None
        found |= {str(name) for name in names}
    return found


def _reads_the_command_line(view: View, call: ast.Call) -> bool:
    given = call.args[0] if call.args else keyword_of(call, "args")
    return given is None or any("sys.argv" in view.modules.paths(node) for node in ast.walk(given) if _is_name(node))


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute)


def _is_plain_parser(view: View, call: ast.Call) -> bool:
    """Whether a parser is argparse's own, with nothing taken over from another one."""
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    origins = view.flow.origins(receiver)
    return all(
        isinstance(each, ast.Call)
        and _PARSER in view.modules.paths(each.func)
        and keyword_of(each, "parents") is None
        for each in origins
    )
