"""Why an app has no functions, in words for the person at the terminal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

SCRIPT_NAME = "function_app.py"

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in [^\n]*)?(?:\n\s+(?P<code>[^\n]*))?')


def describe_failure(root: Path, exception: Any) -> str:
    """One paragraph from the runtime's exception: what was raised, where in the app, and what to do."""
    # The runtime appends advice and the whole search path to an import error.
    message = str(exception.message).split(". Cannot find module.")[0].strip()
    return f"the app in {root} cannot be indexed: {message}{_place(root, str(exception.stack_trace or ''))}"


def describe_no_functions(root: Path) -> str:
    """One paragraph on why the app was imported, or not even looked at, and yet has no functions."""
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
    """``file, line N: code`` of the innermost frame in the app, else of the innermost of all; '' for none."""
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
