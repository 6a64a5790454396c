"""The texts that a pipeline may hold: each type says in words what it takes."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field


def matching(pattern: str, meaning: str) -> AfterValidator:
    """Return a check of a text; pydantic's own has no look-ahead and cannot say what was meant."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text, re.ASCII):
            raise ValueError(f"should be {meaning}")
        return text

    return AfterValidator(check)


Name = Annotated[str, matching(r"[a-z0-9][a-z0-9_-]{0,62}", "1 to 63 lower-case letters, digits, - and _")]
FeatureName = Annotated[str, Field(min_length=1, max_length=200)]
Split = Annotated[str, matching(r"[A-Za-z][A-Za-z0-9_]{0,63}", "the name of a split, as train")]
Script = Annotated[
    str,
    matching(
        r"training_job\.train|scripts/[A-Za-z0-9_][A-Za-z0-9_-]{0,99}\.py",
        "training_job.train, or scripts/<file>.py in the folder scripts beside the pipelines",
    ),
]
Compute = Annotated[
    str,
    matching(
        r"[a-zA-Z](?![a-zA-Z0-9-]*-\d+$)[a-zA-Z0-9-]{2,23}",
        "an Azure ML compute: 3 to 24 letters, digits and -, a letter first, not ending in - and digits",
    ),
]
VmSizeName = Annotated[str, matching(r"Standard_[A-Za-z0-9_]{2,60}", "an Azure VM size, as Standard_NC6s_v3")]
Container = Annotated[
    str,
    matching(r"[a-z0-9](-?[a-z0-9]){2,62}", "a container: 3 to 63 lower-case letters, digits and single -"),
]
VariableName = Annotated[str, matching(r"[A-Za-z_][A-Za-z0-9_]{0,127}", "the name of an environment variable")]
ModelName = Annotated[str, matching(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,254}", "letters, digits, - . and _")]
