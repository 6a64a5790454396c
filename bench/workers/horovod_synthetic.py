"""One rank of Horovod's synthetic benchmark for TensorFlow 2, rewritten.

The steps are those of ``examples/tensorflow2/tensorflow2_synthetic_benchmark.py`` in Horovod's repository: a model of
keras.applications in training mode on one random batch, `hvd.DistributedGradientTape`, plain SGD at 0.01, variables
broadcast after the first step. It needs Keras 2. It uses default settings only.
"""

from __future__ import annotations

import os

from bench.workers.gate import open_gate

_NUM_CLASSES = 1000
_LEARNING_RATE = 0.01


def main() -> None:
    """Train as long as the benchmark requests steps."""
    gate, arguments = open_gate()
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    shape = (arguments.image_height, arguments.image_width, arguments.image_channels)
    model = getattr(tf.keras.applications, arguments.model_name)(
        weights=None, input_shape=shape, classes=_NUM_CLASSES
    )
    optimizer = tf.optimizers.SGD(_LEARNING_RATE)
    size = arguments.per_process_batch_size
    images = tf.random.uniform([size, *shape])
    labels = tf.random.uniform([size, 1], minval=0, maxval=_NUM_CLASSES - 1, dtype=tf.int64)

    @tf.function  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def step(*, first: bool) -> None:
        with tf.GradientTape() as tape:
            loss = tf.losses.sparse_categorical_crossentropy(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape, compression=hvd.Compression.none)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        if first:
            hvd.broadcast_variables(model.variables, root_rank=0)
            hvd.broadcast_variables(optimizer.variables, root_rank=0)

    step(first=True)
    step(first=False)  # Trace both before the first timed step.
    gate.introduce(world_size=hvd.size())
    while True:
        gate.pass_one()
        step(first=False)


if __name__ == "__main__":
    main()
