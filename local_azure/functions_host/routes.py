"""Route templates of HTTP functions, and which of them answers a path.

Precedence is ASP.NET's, which the Functions host uses: segment by segment a literal beats a constrained
parameter beats a parameter beats a catch-all. A method that a function does not list is no match at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from local_azure.functions_host.errors import BindingError
from local_azure.functions_host.functions import Function

_PARAMETER = re.compile(
    r"\{(?P<stars>\*{0,2})(?P<name>\w+)(?P<constraint>(?::[^{}?=]+)*)(?:=(?P<default>[^{}?]*))?(?P<optional>\??)\}"
)
_CONSTRAINTS = {
    "int": r"[+-]?\d+",
    "long": r"[+-]?\d+",
    "guid": r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "bool": r"(?i:true|false)",
    "alpha": r"[A-Za-z]+",
}
"""The constraints understood here; others are refused, not ignored."""

LITERAL, CONSTRAINED, PARAMETER, CATCH_ALL = range(4)


@dataclass(frozen=True, kw_only=True)
class Route:
    """One HTTP function's template, ready to be matched."""

    function: Function
    pattern: re.Pattern[str]
    methods: frozenset[str]
    """Empty for all."""
    precedence: tuple[int, ...]
    """Compared in order; smaller is tried first."""
    template: str
    """With the route prefix."""


@dataclass(frozen=True, kw_only=True)
class Match:
    """The function that answers a path, and its route parameters."""

    function: Function
    parameters: dict[str, str]


def make_routes(functions: Iterable[Function], route_prefix: str) -> list[Route]:
    """The routes of all HTTP functions, in the order in which they are tried."""
    routes = [make_route(function, route_prefix) for function in functions if function.trigger_is("httpTrigger")]
    return sorted(routes, key=lambda route: route.precedence)


def make_route(function: Function, route_prefix: str) -> Route:
    """The route of one HTTP function. Raises BindingError for a template that is not understood."""
    trigger = function.trigger
    template = "/".join(
        part for part in (route_prefix, str(trigger.get("route") or function.name).strip("/")) if part
    )
    segments = [_segment(segment, function.name) for segment in template.split("/")]
    return Route(
        function=function,
        pattern=re.compile("".join(pattern for pattern, _ in segments) + "/?", re.IGNORECASE),
        methods=frozenset(str(method).upper() for method in trigger.get("methods") or ()),
        precedence=tuple(rank for _, rank in segments),
        template=template,
    )


def find_route(routes: Iterable[Route], method: str, path: str) -> Match | None:
    """The first route that takes ``method`` and the still encoded ``path``."""
    for route in routes:
        match = route.pattern.fullmatch("/" + path.strip("/")) if _takes(route, method) else None
        if match:
            return Match(function=route.function, parameters=_parameters(match))
    return None


def _takes(route: Route, method: str) -> bool:
    return not route.methods or method.upper() in route.methods


def _parameters(match: re.Match[str]) -> dict[str, str]:
    return {name: unquote(value) for name, value in match.groupdict().items() if value}


def _segment(segment: str, function_name: str) -> tuple[str, int]:
    """The segment's pattern with the slash before it, and its precedence."""
    whole = _PARAMETER.fullmatch(segment)
    if whole and whole["stars"]:
        return rf"(?:/(?P<{whole['name']}>.*))?", CATCH_ALL
    if whole and whole["optional"]:
        return rf"(?:/(?P<{whole['name']}>{_constraint(whole, function_name)}))?", _rank(whole)
    pattern, end = "/", 0
    parameters = list(_PARAMETER.finditer(segment))
    for parameter in parameters:
        pattern += re.escape(segment[end : parameter.start()])
        pattern += rf"(?P<{parameter['name']}>{_constraint(parameter, function_name)})"
        end = parameter.end()
    rest = segment[end:]
    if "{" in rest or "}" in rest:
        raise BindingError(
            f"function {function_name} has a route with the segment {segment!r}, which is not understood"
        )
    rank = max((_rank(parameter) for parameter in parameters), default=LITERAL)
    return pattern + re.escape(rest), rank


def _rank(parameter: re.Match[str]) -> int:
    return CONSTRAINED if parameter["constraint"] else PARAMETER


def _constraint(parameter: re.Match[str], function_name: str) -> str:
    names = [name for name in parameter["constraint"].split(":") if name]
    unknown = [name for name in names if name not in _CONSTRAINTS]
    if unknown or len(names) > 1:
        raise BindingError(
            f"function {function_name} has the route parameter {parameter[0]}; the dev host understands one of the "
            f"constraints {', '.join(_CONSTRAINTS)}"
        )
    return _CONSTRAINTS[names[0]] if names else "[^/]+"
