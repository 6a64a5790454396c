"""Loads a user's own model from a Python file with one function."""

from __future__ import annotations

import importlib.util
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

from training_job.errors import ModelError

FUNCTION = "build_model"


def user_model(path: Path, input_shape: tuple[int, ...], num_outputs: int) -> keras.Model:
    """Call ``build_model(input_shape, num_outputs)`` of the file; it returns a model of logits.

    Raises ModelError if the file, the function or the model is not as required.
    """
    build = _function(path)
    try:
        model = build(input_shape, num_outputs)
    except Exception as error:
        raise ModelError(f"{FUNCTION} of {path} failed: {_own_lines(error)}") from error
    if not isinstance(model, keras.Model):
        raise ModelError(f"{FUNCTION} of {path} must return a keras.Model: it returned {type(model).__name__}.")
    if tuple(model.output_shape) != (None, num_outputs):
        raise ModelError(
            f"{FUNCTION} of {path} should return a model of logits with shape (None, {num_outputs}), "
            f"its output has {model.output_shape}."
        )
    return model


def _function(path: Path) -> Callable[[tuple[int, ...], int], Any]:
    if not path.is_file():
        raise ModelError(f"Model module {path} does not exist; its path is relative to {Path.cwd()}.")
    spec = importlib.util.spec_from_file_location("landfall_user_model", path)
    if spec is None or spec.loader is None:
        raise ModelError(f"Model module {path} is not a Python file: its name must end in .py.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ModelError(f"Model module {path} cannot be loaded: {_own_lines(error)}") from error
    function = getattr(module, FUNCTION, None)
    if not callable(function):
        raise ModelError(f"Model module {path} has no function {FUNCTION}(input_shape, num_classes).")
    return function  # type: ignore[no-any-return]  # its arguments and result are checked when it is called


def _own_lines(error: Exception) -> str:
    """Return the error with the line that raised it, which is in the user's own code."""
    frames = traceback.extract_tb(error.__traceback__)
    where = frames[-1] if frames else None
    place = f" ({Path(where.filename).name}, line {where.lineno})" if where else ""
    return f"{type(error).__name__}: {error}{place}"
