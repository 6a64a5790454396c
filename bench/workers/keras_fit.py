"""The same training as `bench.workers.training`, with Keras' own `fit` and none of Landfall's code around it.

Model, batches, optimizer, precision and XLA setting are the same; there is one process and no Horovod. `fit` runs
silently, because its progress bar would take time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.workers.gate import open_gate
from training_job import process_environment
from training_job.job import prepare


def main() -> None:
    """Train as long as the benchmark requests steps."""
    gate, arguments = open_gate()
    job = prepare(arguments, 1)
    process_environment.set_for(arguments, Path(arguments.report))
    import keras
    import tensorflow as tf

    from training_job.data.inputs import open_inputs
    from training_job.models import build_model
    from training_job.optimizers import build_optimizer

    threads = process_environment.threads_per_rank()
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    keras.utils.set_random_seed(arguments.seed)
    inputs = open_inputs(job, 0, threads)
    model = build_model(arguments, inputs.model_shape)
    model.compile(
        optimizer=build_optimizer(arguments, model.trainable_variables, scaled_loss=False),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(5)],
        jit_compile=arguments.xla,
    )

    class PassGate(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        """A Keras callback that waits at the gate before every step."""

        def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
            """Wait at the gate."""
            del batch, logs
            gate.pass_one()

    batches = inputs.training.training_epoch(0).map(lambda images, labels, _: (images, labels))
    gate.introduce(world_size=1)
    model.fit(batches, epochs=1, verbose=0, callbacks=[PassGate()])


if __name__ == "__main__":
    main()
