"""Which weights decay: kernels. A bias or a normalisation's scale has no size to keep small."""

from __future__ import annotations

from typing import Any


def is_decayed(variable: Any) -> bool:
    """Whether weight decay and layer-wise rates apply: variables with two axes or more."""
    return len(variable.shape) > 1
