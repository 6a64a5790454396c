"""Whether the script's parser accepts the job's arguments: their names, their values, and required options.

A parser is built with ``argparse`` from the literals in the script, and parses the job's arguments; the script never
runs.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from horovod_lint.findings import Finding
from horovod_lint.rules import RuleCode
from horovod_lint.script import constant_of, keyword_of
from horovod_lint.view import View
from shared.safe_text import one_line

_PARSER = "argparse.ArgumentParser"
_MAX_NAMED = 3
_MAX_CHOICES = 1000
"""With more choices, values are not checked: a message would list all of them."""
_MAX_SHOWN_CHARS = 300


def check(view: View) -> Iterator[Finding]:
    """Find argparse parsers that reject the job's arguments; without a known job there is no finding."""
    known = _known_options(view)
    if not view.machine.words_of_runs or known is None:
        return
    # argparse accepts unambiguous prefixes of options
    missing = [flag for flag in view.machine.job_flags if not any(option.startswith(flag) for option in known)]
    for call in view.method_calls("parse_args", "parse_known_args"):
        if not _reads_the_command_line(view, call) or not _is_plain_parser(view, call):
            continue
        is_strict = isinstance(call.func, ast.Attribute) and call.func.attr == "parse_args"
        if missing and is_strict:
            more = f" and {len(missing) - _MAX_NAMED} more" if len(missing) > _MAX_NAMED else ""
            message = f"the job passes {', '.join(missing[:_MAX_NAMED])}{more}, which this parser does not accept"
            yield view.finding(RuleCode.ARGUMENTS_NOT_TAKEN, call, message)
        elif (problem := _problem(view, is_strict=is_strict)) is not None:
            message = f"this parser rejects what the job passes: {problem[:_MAX_SHOWN_CHARS]}"
            yield view.finding(RuleCode.ARGUMENTS_NOT_TAKEN, call, message)


def _known_options(view: View) -> set[str] | None:
    """Return all options that the script adds, None if a name is not a literal."""
    found: set[str] = set()
    for call in view.method_calls("add_argument"):
        names = [constant_of(argument) for argument in call.args]
        if not all(isinstance(name, str) for name in names):
            return None
        found |= {str(name) for name in names}
    return found


def _reads_the_command_line(view: View, call: ast.Call) -> bool:
    args = call.args[0] if call.args else keyword_of(call, "args")
    return args is None or any("sys.argv" in view.modules.paths(node) for node in ast.walk(args) if _is_name(node))


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute)


def _is_plain_parser(view: View, call: ast.Call) -> bool:
    """Whether a parser is a plain ``argparse.ArgumentParser`` without ``parents``."""
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    origins = view.flow.origins(receiver)
    return all(
        isinstance(each, ast.Call)
        and _PARSER in view.modules.paths(each.func)
        and keyword_of(each, "parents") is None
        for each in origins
    )


# -- values
class _RefusedError(Exception):
    """The message of argparse before it exits."""


class _UnknownError(Exception):
    """The script does not show a part of its parser."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _RefusedError(message)


_TYPES: Mapping[str, type] = {"int": int, "float": float, "str": str}
_STORING = frozenset({"store", "append", "extend"})
_SWITCHES = frozenset({"store_true", "store_false", "store_const", "append_const", "count"})
_ENDING = frozenset({"help", "version"})
"""Actions that print something and exit with status 0, as if the training had ended well."""
_HOLDERS = (ast.If, ast.For, ast.While, ast.Try, ast.With, ast.Match, ast.IfExp)
_ENDED = "landfall_ended"


def _problem(view: View, *, is_strict: bool) -> str | None:
    """Return why argparse rejects the arguments of a run; None if it accepts them or the parser is not known."""
    try:
        parser = _parser_of(view)
        for number, words in enumerate(view.machine.words_of_runs, 1):
            if (refusal := _refusal(parser, list(words), is_strict=is_strict)) is not None:
                return refusal if len(view.machine.words_of_runs) == 1 else f"{refusal} (run {number} of the sweep)"
    except (_UnknownError, argparse.ArgumentError, ValueError, TypeError, IndexError, AttributeError):
        return None
    return None


def _refusal(parser: _Parser, words: list[str], *, is_strict: bool) -> str | None:
    """Return the message of argparse before it exits, None if it accepts the words."""
    try:
        parsed, _ = parser.parse_known_args(words)
        if ended := getattr(parsed, _ENDED, None):
            return f"{ended} prints a text and ends the script, which then trains nothing"
        if is_strict:
            parser.parse_args(words)
    except _RefusedError as refused:
        return one_line(str(refused))
    return None


def _parser_of(view: View) -> _Parser:
    """Return a parser with the script's options. Raises _UnknownError if the script does not show all of it."""
    made = [call for call in view.script.calls if _PARSER in view.modules.paths(call.func)]
    if len(made) != 1 or any(view.method_calls("add_subparsers", "add_mutually_exclusive_group")):
        raise _UnknownError
    if {keyword.arg for keyword in made[0].keywords} & {None, "prefix_chars", "fromfile_prefix_chars"}:
        raise _UnknownError
    parser = _Parser(prog="script", usage="", add_help=False, argument_default=argparse.SUPPRESS)
    if constant_of(keyword_of(made[0], "add_help")) is not False:
        parser.add_argument("-h", "--help", action="store_const", const="--help", dest=_ENDED)
    for call in view.method_calls("add_argument"):
        _add(parser, view, call)
    return parser


def _add(parser: _Parser, view: View, call: ast.Call) -> None:
    if any(isinstance(each, _HOLDERS) and not _is_main(each) for each in view.script.ancestors(call)):
        raise _UnknownError
    names = [str(constant_of(argument)) for argument in call.args]
    stated = {keyword.arg: keyword.value for keyword in call.keywords}
    if None in stated or not names:
        raise _UnknownError
    own: dict[str, Any] = {}
    action = constant_of(stated.get("action")) if "action" in stated else "store"
    if action in _ENDING:
        own["action"], own["const"], own["dest"] = "store_const", names[-1], _ENDED
    elif action in _SWITCHES:
        own["action"], own["required"] = "store_true", constant_of(stated.get("required")) is True
    elif action in _STORING:
        own = _storing(view, stated)
        own["action"] = action
        if names[0].startswith("-"):
            own["required"] = constant_of(stated.get("required")) is True
    else:
        raise _UnknownError
    parser.add_argument(*names, **own)


def _is_main(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def _storing(view: View, stated: Mapping[str | None, ast.expr]) -> dict[str, Any]:
    """Return the number of values that an option takes, and its choices.

    Raises _UnknownError for an unknown number.
    """
    own: dict[str, Any] = {}
    if "nargs" in stated:
        count = constant_of(stated["nargs"])
        if not (count in ("?", "*", "+", "...") or (isinstance(count, int) and 1 <= count <= _MAX_CHOICES)):
            raise _UnknownError
        own["nargs"] = count
    if "type" in stated:
        name = stated["type"]
        if not isinstance(name, ast.Name) or name.id not in _TYPES or view.script.lookup(name):
            return own  # a function of the script converts the values, and the choices are its results
        own["type"] = _TYPES[name.id]
    choices = _choices(stated.get("choices"))
    return own if choices is None else {**own, "choices": choices}


def _choices(stated: ast.expr | None) -> Sequence[object] | None:
    if isinstance(stated, ast.List | ast.Tuple | ast.Set):
        values = [constant_of(each) for each in stated.elts]
        return values if all(isinstance(each, ast.Constant) for each in stated.elts) else None
    if isinstance(stated, ast.Call) and isinstance(stated.func, ast.Name) and stated.func.id == "range":
        bounds = [bound for each in stated.args if isinstance(bound := constant_of(each), int)]
        if len(bounds) == len(stated.args) and len(numbers := range(*bounds)) <= _MAX_CHOICES:
            return numbers
    return None
