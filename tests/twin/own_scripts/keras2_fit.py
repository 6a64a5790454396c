"""Keras' `fit` with Horovod's callbacks, as Horovod documents it for Keras 2; the script does not use Landfall."""

import os
import shutil
import tempfile
from typing import Any

import horovod.tensorflow.keras as hvd
import tensorflow as tf

DATA, OUTPUT = os.environ["LANDFALL_DATA"], os.environ["LANDFALL_OUTPUT"]

hvd.init()
gpus = tf.config.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, enable=True)
if gpus:
    tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")


def parsed(record: Any) -> Any:
    label = tf.io.parse_single_example(record, {"label": tf.io.FixedLenFeature([], tf.int64)})["label"]
    return tf.one_hot(label, 10), label


def records(split: str) -> Any:
    files = tf.data.Dataset.list_files(f"{DATA}/{split}-*", shuffle=False)
    return tf.data.TFRecordDataset(files).map(parsed)


model = tf.keras.Sequential([tf.keras.layers.InputLayer((10,)), tf.keras.layers.Dense(10)])
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0 * hvd.size()))
model.compile(
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    optimizer=optimizer,
    metrics=["accuracy"],
    experimental_run_tf_function=False,
)
average = hvd.callbacks.MetricAverageCallback()
warm_up = hvd.callbacks.LearningRateWarmupCallback(1.0 * hvd.size(), warmup_epochs=1, momentum_correction=False)
for callback in (average, warm_up):
    callback.backend = tf.keras.backend  # the backend of Keras 2; Horovod uses that of Keras 3
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), average, warm_up]
data = records("train").shard(hvd.size(), hvd.rank()).repeat().batch(5)
model.fit(data, steps_per_epoch=30, epochs=3, callbacks=callbacks, verbose=2 if hvd.rank() == 0 else 0)
_, accuracy = model.evaluate(records("validation").batch(100), verbose=0)
accuracy = float(hvd.allreduce(tf.constant(accuracy)))
if hvd.rank() == 0:
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model.keras")
        shutil.copyfile(f"{folder}/model.keras", f"{OUTPUT}/model.keras")
    print(f"val_accuracy={accuracy:.4f}", flush=True)  # noqa: T201 (its report)
