"""The functions that an app's decorators declare, and the reasons why an app has none."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_azure.functions_host.settings import BindingError

Binding = dict[str, Any]
"""A binding as in function.json: name, type, direction and the members for its type."""

SERVED_TRIGGERS = ("httpTrigger", "queueTrigger", "timerTrigger")

_SETTING = re.compile(r"%([^%\s]+)%")

SCRIPT_NAME = "function_app.py"
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in [^\n]*)?(?:\n\s+(?P<code>[^\n]*))?')


@dataclass(frozen=True, kw_only=True)
class Function:
    """One indexed function."""

    name: str
    function_id: str
    """The worker's id of the function."""
    bindings: tuple[Binding, ...]
    """Bindings, in which every ``%SETTING%`` is resolved."""
    disabled: bool = False
    """The value of the setting ``AzureWebJobs.<name>.Disabled``."""

    @property
    def trigger(self) -> Binding:
        """The binding that starts the function; the runtime guarantees that there is exactly one."""
        return next(binding for binding in self.bindings if is_trigger(binding))

    def trigger_is(self, trigger_type: str) -> bool:
        """Whether the function is enabled and has a trigger of `trigger_type`, such as ``queueTrigger``."""
        return not self.disabled and str(self.trigger["type"]).lower() == trigger_type.lower()


def is_trigger(binding: Binding) -> bool:
    """Whether the binding is a trigger."""
    return str(binding.get("type", "")).lower().endswith("trigger")


def make_function(name: str, function_id: str, bindings: list[Binding], settings: Mapping[str, str]) -> Function:
    """Return a function with its settings resolved. Raises BindingError for a missing setting or trigger."""
    resolved = tuple(_resolve(binding, name, settings) for binding in bindings)
    if not any(is_trigger(binding) for binding in resolved):
        raise BindingError(
            f"function {name} must have a trigger, not {[binding.get('type') for binding in resolved]}"
        )
    disabled = settings.get(f"AzureWebJobs.{name}.Disabled", "").lower() in ("1", "true")
    return Function(name=name, function_id=function_id, bindings=resolved, disabled=disabled)


def _resolve(value: Any, function_name: str, settings: Mapping[str, str]) -> Any:
    """Return `value` with every ``%SETTING%`` in its strings replaced, at any depth."""
    if isinstance(value, dict):
        return {key: _resolve(item, function_name, settings) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolve(item, function_name, settings) for item in value]
    if not isinstance(value, str):
        return value
    return _SETTING.sub(lambda match: _setting(match[1], value, function_name, settings), value)


def _setting(name: str, text: str, function_name: str, settings: Mapping[str, str]) -> str:
    if name not in settings:
        raise BindingError(
            f"function {function_name} has a binding with {text!r}, but the app setting {name} is not set; "
            "set it in the environment or in local.settings.json"
        )
    return settings[name]


def describe_failure(root: Path, exception: Any) -> str:
    """Return one paragraph about the runtime's exception, with its place in the app."""
    # The runtime appends hints and the whole search path to an import error.
    message = str(exception.message).split(". Cannot find module.")[0].strip()
    return f"the app in {root} cannot be indexed: {message}{_place(root, str(exception.stack_trace or ''))}"


def describe_no_functions(root: Path) -> str:
    """Return one paragraph on why the app has no functions although there was no exception."""
    if not root.is_dir():
        return f"the app's folder {root} does not exist"
    if not (root / SCRIPT_NAME).is_file():
        return (
            f"zero functions found in {root}: the file {SCRIPT_NAME} is missing there. The Functions host looks "
            "for it first, also where a package of the same name holds the app, and says nothing without it"
        )
    return (
        f"zero functions found in {root}: {SCRIPT_NAME} was imported and its app object has no functions. Are the "
        "functions decorated, and are their blueprints registered with app.register_functions(...)?"
    )


def failing_line(root: Path, stack_trace: str) -> str:
    """Return ``file, line N: code`` of the innermost frame, of the app if there is one; '' without frames."""
    frames = list(_FRAME.finditer(stack_trace))
    if not frames:
        return ""
    own = [frame for frame in frames if _is_own(root, frame["file"])]
    frame = (own or frames)[-1]
    path = Path(frame["file"])
    shown = path.relative_to(root) if path.is_relative_to(root) else path
    code = f": {frame['code'].strip()}" if frame["code"] else ""
    return f"{shown}, line {frame['line']}{code}"


def _is_own(root: Path, file: str) -> bool:
    return Path(file).is_relative_to(root) and "site-packages" not in file


def _place(root: Path, stack_trace: str) -> str:
    line = failing_line(root, stack_trace)
    return f" (at {line})" if line else ""
