"""Optimizers by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from shared.training_options import OptimizationOptions, numbers
from training_job.optimization.decayed import is_decayed
from training_job.optimization.momentum import Lars, Momentum
from training_job.optimization.rates import RateSchedule


def build_optimizer(
    options: OptimizationOptions, variables: Sequence[Any], *, scaled_loss: bool
) -> keras.optimizers.Optimizer:
    """Build an optimizer with its state for the variables; ``scaled_loss`` for float16, whose gradients underflow."""
    optimizer = _by_name(options, variables)
    if scaled_loss:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    optimizer.build(variables)
    return optimizer


def rate_schedule(options: OptimizationOptions, global_batch_size: int) -> RateSchedule:
    """Return the schedule that the options ask for at this global batch."""
    return RateSchedule(
        base=options.learning_rate,
        scale=global_batch_size / options.reference_batch_size if options.reference_batch_size else 1.0,
        epochs=options.epochs,
        warm_up_epochs=options.warm_up_epochs,
        schedule=options.schedule,
        decay_epochs=numbers(options.decay_epochs),
        decay_factor=options.decay_factor,
    )


def _by_name(options: OptimizationOptions, variables: Sequence[Any]) -> keras.optimizers.Optimizer:
    if options.optimizer == "sgd":
        return Momentum(options.learning_rate, options.momentum, options.weight_decay)
    if options.optimizer == "lars":
        return Lars(options.learning_rate, options.momentum, options.weight_decay)
    if options.optimizer == "adam" and not options.weight_decay:
        return keras.optimizers.Adam(options.learning_rate)
    decoupled = keras.optimizers.AdamW(options.learning_rate, weight_decay=options.weight_decay)
    decoupled.exclude_from_weight_decay(var_list=[v for v in variables if not is_decayed(v)])
    return decoupled
