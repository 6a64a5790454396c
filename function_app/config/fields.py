"""Types of fields of pipeline files and of ``clusters.yaml``, with the checks that several of them share."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from shared.job_arguments import SIMULATED
from shared.shard_names import DATASET_MEANING, DATASET_PATTERN
from shared.vm_sizes import checked_gpu, checked_name

MAX_NODES = 100
"""Azure ML's limit for one MPI job."""
CONTAINER_NAME = r"[a-z0-9](-?[a-z0-9]){2,62}"
"""What Azure accepts as the name of a blob container."""


def matching(pattern: str, meaning: str) -> AfterValidator:
    """Return a check that a text matches a pattern; errors show ``meaning``.

    Pydantic's own pattern check has no look-ahead, and its errors show the regular expression.
    """

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text, re.ASCII):
            raise ValueError(f"must be {meaning}")
        return text

    return AfterValidator(check)


Number = int | float
Name = Annotated[str, matching(DATASET_PATTERN.pattern, DATASET_MEANING)]
FeatureName = Annotated[str, Field(min_length=1, max_length=200)]
Split = Annotated[str, matching(r"[A-Za-z][A-Za-z0-9_]{0,63}", "the name of a split, such as train")]
Script = Annotated[
    str,
    matching(
        r"training_job\.train|scripts/[A-Za-z0-9_][A-Za-z0-9_-]{0,99}\.py",
        "training_job.train, or scripts/<file>.py in the folder scripts beside the pipeline files",
    ),
]
Distribution = Literal["mpi", "tensorflow", "pytorch"]
"""How Azure ML starts the processes of a job, and tells each of the others."""
ScriptArgument = Annotated[
    str,
    Field(max_length=4096),
    matching(r"(?!.*\$\{\{)[^\x00-\x1f\x7f]*", "a text without line breaks, control characters and ${{"),
]
ClusterName = Annotated[
    str,
    matching(
        r"[a-zA-Z](?![a-zA-Z0-9-]*-\d+$)[a-zA-Z0-9-]{2,23}",
        "the name of an Azure ML cluster: 3 to 24 letters, digits and -, starting with a letter, not ending in - and "
        "digits",
    ),
]
VmSizeName = Annotated[str, AfterValidator(checked_name)]
GpuName = Annotated[str, AfterValidator(checked_gpu)]
Container = Annotated[
    str,
    matching(CONTAINER_NAME, "a container: 3 to 63 lower-case letters, digits and single -"),
]
VariableName = Annotated[
    str,
    matching(
        rf"(?!{SIMULATED}|OMPI_COMM_WORLD_)[A-Za-z_][A-Za-z0-9_]{{0,127}}",
        f"the name of an environment variable that neither begins with OMPI_COMM_WORLD_ nor with {SIMULATED}, "
        "which say what a job runs on",
    ),
]
ModelName = Annotated[str, matching(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,254}", "letters, digits, - . and _")]


class Section(BaseModel):
    """A part of a file: unknown fields are refused, values are not converted, and it is immutable."""

    # Built with the first file: every cold start imports this module, and building takes most of its time.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


def check_order(low_name: str, low: float | None, high_name: str, high: float | None) -> None:
    """Raise ValueError if no value can be within two bounds."""
    if low is not None and high is not None and low > high:
        raise ValueError(f"{low_name} {low} is above {high_name} {high}, so that no value is allowed")
