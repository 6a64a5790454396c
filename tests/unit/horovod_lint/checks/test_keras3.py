"""Horovod features that do not work on Keras 3."""

from __future__ import annotations

import pytest

from tests.unit.horovod_lint.scripts import FIT, TAPE, found, places, spoilt

ON_KERAS_3 = spoilt(FIT, ('os.environ["TF_USE_LEGACY_KERAS"] = "1"\n', ""))


def test_one_finding_names_all_that_breaks() -> None:
    """The finding is at the first use."""
    assert [("keras3_incompatible", "optimizer = hvd.DistributedOptimizer(optimizer)")] == places(ON_KERAS_3)


def test_a_use_in_a_function_that_is_never_called_does_not_count() -> None:
    """The finding is at the first use that runs."""
    unused = "def unused():\n    return hvd.DistributedOptimizer(1)\n\nhvd.init()\n"
    script = spoilt(ON_KERAS_3, ("hvd.init()\n", unused))
    assert [("keras3_incompatible", "optimizer = hvd.DistributedOptimizer(optimizer)")] == places(script)


def test_keras_2_can_be_selected() -> None:
    """By the script, by its pipeline, or by importing it."""
    assert [] == found(FIT)
    assert [] == found(ON_KERAS_3, TF_USE_LEGACY_KERAS="1")
    assert ["keras3_incompatible"] == found(ON_KERAS_3, TF_USE_LEGACY_KERAS="0")
    assert [] == found(ON_KERAS_3.replace("import os\n", "import tf_keras\n"))


@pytest.mark.parametrize(
    "change",
    [
        ("tape.gradient(loss, values(model.trainable_variables))", "tape.gradient(loss, model.trainable_variables)"),
        ("broadcast_variables(values(model.variables)", "broadcast_variables(model.variables"),
        ("broadcast_variables(values(optimizer.variables)", "broadcast_variables(optimizer.variables()"),
    ],
)
def test_keras_variables_passed_to_horovod_are_found(change: tuple[str, str]) -> None:
    """Horovod's functions need TensorFlow variables: `variable.value`."""
    assert ["keras3_incompatible"] == found(spoilt(TAPE, change))


def test_the_optimizer_of_horovod_tensorflow_is_found_as_well() -> None:
    """It passes a Keras optimizer to the same code."""
    script = spoilt(ON_KERAS_3, ("import horovod.tensorflow.keras as hvd", "import horovod.tensorflow as hvd"))
    assert ["keras3_incompatible"] == found(script)


def test_an_optimizer_of_tensorflow_1_is_not_found() -> None:
    """It does not depend on Keras."""
    script = """
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
print(hvd.local_rank())
opt = hvd.DistributedOptimizer(tf.compat.v1.train.AdamOptimizer(0.1))
"""
    assert [] == found(script)
