"""Convert everything that a training changes to named arrays and back: the content of a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from training_job.errors import CheckpointError

Arrays = dict[str, np.ndarray[Any, Any]]

_SEED_PATH = "seed_generator_state"
_RANK_STRIDE = 0x9E3779B9
"""2³² over the golden ratio: neighbouring ranks get seeds that are far apart."""


def all_variables(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> list[Any]:
    """Return weights, statistics, random seeds and the optimizer's state, in the order of the model."""
    return [*model.variables, *optimizer.variables]


def statistics(model: keras.Model) -> list[Any]:
    """Return the weights that each rank updates by its own batches alone: the moving statistics of batch norm."""
    return list(model.non_trainable_weights)


def to_arrays(variables: Sequence[Any]) -> Arrays:
    """Return the values, named by position and path so that a mismatch is detected."""
    return {f"{i:05d}/{v.path}": np.asarray(v) for i, v in enumerate(variables)}


def assign(variables: Sequence[Any], arrays: Arrays) -> None:
    """Set variables to the values of `to_arrays`. Raises CheckpointError if these belong to another model."""
    shapes = {f"{i:05d}/{v.path}": tuple(v.shape) for i, v in enumerate(variables)}
    found = {name: tuple(array.shape) for name, array in arrays.items()}
    if shapes != found:
        differing = sorted(set(shapes.items()) ^ set(found.items()))[:4]
        raise CheckpointError(
            f"The checkpoint belongs to another model or optimizer: expected {len(shapes)} variables, got "
            f"{len(found)}; the first that differ: {differing}. "
            f"Start without it, or with the options that it was saved with."
        )
    for variable, array in zip(variables, arrays.values(), strict=True):
        variable.assign(array)


def separate_random_seeds(model: keras.Model, rank: int) -> None:
    """Give every rank its own dropout masks; the root keeps the seeds that all ranks had."""
    for variable in model.variables:
        if variable.path.endswith(_SEED_PATH):
            state = np.asarray(variable).copy()
            state[0] ^= np.asarray(rank * _RANK_STRIDE % (1 << 32)).astype(state.dtype)
            variable.assign(state)
