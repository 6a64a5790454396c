"""What Keras 3 breaks of Horovod 0.28.1, and who is spared."""

from __future__ import annotations

import pytest

from tests.unit.horovod_lint.scripts import FIT, TAPE, found, places, spoilt

ON_KERAS_3 = spoilt(FIT, ('os.environ["TF_USE_LEGACY_KERAS"] = "1"\n', ""))


def test_one_finding_names_all_that_breaks() -> None:
    """At the first of them."""
    assert [("keras3_incompatible", "optimizer = hvd.DistributedOptimizer(optimizer)")] == places(ON_KERAS_3)


def test_what_is_never_called_does_not_hide_what_is() -> None:
    """The finding is at the first place that runs."""
    unused = "def unused():\n    return hvd.DistributedOptimizer(1)\n\nhvd.init()\n"
    script = spoilt(ON_KERAS_3, ("hvd.init()\n", unused))
    assert [("keras3_incompatible", "optimizer = hvd.DistributedOptimizer(optimizer)")] == places(script)


def test_keras_2_may_be_asked_for() -> None:
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
def test_variables_of_keras_are_not_for_horovod(change: tuple[str, str]) -> None:
    """Its functions want TensorFlow's: `variable.value`."""
    assert ["keras3_incompatible"] == found(spoilt(TAPE, change))


def test_the_optimizer_of_plain_horovod_breaks_alike() -> None:
    """It hands a Keras optimizer on to the same code."""
    script = spoilt(ON_KERAS_3, ("import horovod.tensorflow.keras as hvd", "import horovod.tensorflow as hvd"))
    assert ["keras3_incompatible"] == found(script)


def test_an_optimizer_of_tensorflow_1_is_another_matter() -> None:
    """It is no optimizer of Keras."""
    script = """
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
print(hvd.local_rank())
opt = hvd.DistributedOptimizer(tf.compat.v1.train.AdamOptimizer(0.1))
"""
    assert [] == found(script)
