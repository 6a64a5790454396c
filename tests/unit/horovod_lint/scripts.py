"""Correct Horovod scripts in common shapes, which tests break one line at a time."""

from __future__ import annotations

from horovod_lint import Machine, lint_script

TAPE = """
import argparse
import numpy as np
import tensorflow as tf
import horovod.tensorflow as hvd

parser = argparse.ArgumentParser()
parser.add_argument("--data")
parser.add_argument("--model")
parser.add_argument("--epochs", type=int, default=3)


def values(variables):
    return [variable.value for variable in variables]


def main():
    args, _ = parser.parse_known_args()
    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    files = sorted(tf.io.gfile.glob(args.data + "/*.tfrecord"))
    dataset = tf.data.TFRecordDataset(files)
    dataset = dataset.shard(hvd.size(), hvd.rank())
    dataset = dataset.shuffle(1000).batch(32, drop_remainder=True).take(100)
    model = tf.keras.Sequential([tf.keras.layers.Dense(10)])
    optimizer = tf.keras.optimizers.SGD(0.01 * hvd.size())
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, values(model.trainable_variables))
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    best = 1e9
    for epoch in range(args.epochs):
        for batch, (images, labels) in enumerate(dataset):
            loss = step(images, labels)
            if epoch == 0 and batch == 0:
                hvd.broadcast_variables(values(model.variables), root_rank=0)
                hvd.broadcast_variables(values(optimizer.variables), root_rank=0)
        mean = hvd.allreduce(loss)
        if mean > best:
            break
        best = mean
    if hvd.rank() == 0:
        model.save(args.model + "/model.keras")


if __name__ == "__main__":
    main()
"""
"""A hand-written training step that works on Keras 3."""

FIT = """
import os
os.environ["TF_USE_LEGACY_KERAS"] = "1"
import tensorflow as tf
import horovod.tensorflow.keras as hvd

hvd.init()
gpus = tf.config.experimental.list_physical_devices("GPU")
if gpus:
    tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")

(x, y), (x_val, y_val) = tf.keras.datasets.cifar10.load_data()
x, y = x[hvd.rank()::hvd.size()], y[hvd.rank()::hvd.size()]
model = tf.keras.Sequential([tf.keras.layers.Dense(10)])
optimizer = tf.keras.optimizers.SGD(0.01 * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer)
model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
average = hvd.callbacks.MetricAverageCallback()
average.backend = tf.keras.backend
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    average,
    tf.keras.callbacks.EarlyStopping(patience=3),
]
if hvd.rank() == 0:
    callbacks.append(tf.keras.callbacks.ModelCheckpoint("outputs/model.h5", save_best_only=True))
    callbacks.append(tf.keras.callbacks.TensorBoard("logs"))
model.fit(x, y, batch_size=32, steps_per_epoch=50000 // 32 // hvd.size(), epochs=10, callbacks=callbacks,
          validation_data=(x_val, y_val), verbose=1 if hvd.rank() == 0 else 0)
if hvd.rank() == 0:
    model.save("outputs/final.h5")
"""
"""Keras' own loop, which works on Keras 2."""

TORCH = """
import argparse
import torch
import horovod.torch as hvd
from torchvision import datasets

hvd.init()
torch.cuda.set_device(hvd.local_rank())
data = datasets.MNIST("data")
sampler = torch.utils.data.distributed.DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
loader = torch.utils.data.DataLoader(data, batch_size=64, sampler=sampler)
model = torch.nn.Linear(784, 10).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
for epoch in range(10):
    sampler.set_epoch(epoch)
    for image, label in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(image), label)
        loss.backward()
        optimizer.step()
if hvd.rank() == 0:
    torch.save(model.state_dict(), "outputs/model.pt")
"""


def found(script: str, *, vm_size: str | None = None, **environment: str) -> list[str]:
    """Return the codes of the findings, by line."""
    report = lint_script(script.encode(), "mine.py", Machine(vm_size=vm_size, environment=environment))
    return [str(finding.code) for finding in report.findings]


def places(script: str) -> list[tuple[str, str]]:
    """Return each finding's code with its line of the script."""
    lines = script.splitlines()
    return [(str(f.code), lines[f.line - 1].strip()) for f in lint_script(script.encode(), "mine.py").findings]


def spoilt(script: str, *changes: tuple[str, str]) -> str:
    """Return a script with texts replaced. Raises ValueError unless the script contains each text once."""
    for old, new in changes:
        if script.count(old) != 1:
            raise ValueError(f"the script contains {old!r} {script.count(old)} times, expected once")
        script = script.replace(old, new)
    return script
