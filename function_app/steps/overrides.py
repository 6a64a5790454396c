"""What a caller may ask for instead of the pipeline's own options."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from function_app.errors import OverrideError
from function_app.pipelines import Limit, Pipeline
from shared.job_arguments import TrainingOptions

MAX_TEXT_CHARS = 200


def overridden(pipeline: Pipeline, overrides: Mapping[str, Any]) -> TrainingOptions:
    """Return the options to train with. Raises OverrideError naming the field and its limit."""
    options = pipeline.train.options
    for name, value in overrides.items():
        limit = pipeline.train.overrides.get(name)
        if limit is None:
            offered = ", ".join(sorted(pipeline.train.overrides)) or "none"
            raise OverrideError(f"{name[:100]} may not be overridden; pipeline {pipeline.pipeline} offers {offered}")
        _check_type(name, value, getattr(options, name))
        _check_limit(name, value, limit)
    return replace(options, **{name: _like(getattr(options, name), value) for name, value in overrides.items()})


def _check_type(name: str, value: Any, own: Any) -> None:
    """Compare with the type of the pipeline's own value; a whole number is a number, a truth value is none."""
    accepted = (int, float) if isinstance(own, float) else type(own)
    if isinstance(value, bool) != isinstance(own, bool) or not isinstance(value, accepted):
        raise OverrideError(f"{name} should be {type(own).__name__}, was {str(value)[:100]!r}")
    if isinstance(value, str) and len(value) > MAX_TEXT_CHARS:
        raise OverrideError(f"{name} should be at most {MAX_TEXT_CHARS} characters, was {len(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise OverrideError(f"{name} should be a finite number, was {value}")


def _check_limit(name: str, value: Any, limit: Limit) -> None:
    if limit.allowed and value not in limit.allowed:
        raise OverrideError(f"{name} should be one of {list(limit.allowed)}, was {value!r}")
    if limit.minimum is not None and value < limit.minimum:
        raise OverrideError(f"{name} should be at least {limit.minimum}, was {value}")
    if limit.maximum is not None and value > limit.maximum:
        raise OverrideError(f"{name} should be at most {limit.maximum}, was {value}")


def _like(own: Any, value: Any) -> Any:
    return float(value) if isinstance(own, float) else value
