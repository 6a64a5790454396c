"""Whole scripts in the shapes that teams write them: classes, helper functions, decorators, other names."""

from __future__ import annotations

TRAINER = """
import os

os.environ.update({"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"})
import argparse
import tensorflow as tf
import horovod.tensorflow.keras as hvd


class Trainer:
    def __init__(self, args):
        self.args = args
        hvd.init()
        self.rank, self.world = hvd.rank(), hvd.size()
        gpus = tf.config.list_physical_devices("GPU")
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
        if gpus:
            tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
        self.model = self.build_model()

    @property
    def is_chief(self):
        return self.rank == 0

    def build_model(self):
        model = tf.keras.applications.ResNet50(weights=None, classes=10)
        opt = tf.keras.optimizers.SGD(self.args.lr * self.world, momentum=0.9)
        opt = hvd.DistributedOptimizer(opt)
        model.compile(
            loss="sparse_categorical_crossentropy",
            optimizer=opt,
            metrics=["accuracy"],
            experimental_run_tf_function=False,
        )
        return model

    def make_dataset(self, pattern, training):
        files = tf.data.Dataset.list_files(pattern, shuffle=False)
        if training:
            files = files.shard(self.world, self.rank)
        ds = files.interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE)
        if training:
            ds = ds.shuffle(2048).repeat()
        return ds.map(self._parse).batch(self.args.batch).prefetch(tf.data.AUTOTUNE)

    def _parse(self, raw):
        f = tf.io.parse_single_example(
            raw, {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
        )
        return tf.io.decode_jpeg(f["image"]), f["label"]

    def callbacks(self):
        cbs = [
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
            hvd.callbacks.LearningRateWarmupCallback(
                initial_lr=self.args.lr * self.world, warmup_epochs=3, verbose=1
            ),
        ]
        cbs.append(tf.keras.callbacks.EarlyStopping(monitor="val_loss", patience=5))
        if self.is_chief:
            cbs += [
                tf.keras.callbacks.ModelCheckpoint(
                    os.path.join(self.args.out, "ckpt-{epoch}.h5"), save_best_only=True
                )
            ]
            cbs.append(tf.keras.callbacks.TensorBoard(self.args.out))
        return cbs

    def run(self):
        train = self.make_dataset(self.args.train, True)
        val = self.make_dataset(self.args.val, False)
        self.model.fit(
            train,
            steps_per_epoch=self.args.steps // self.world,
            epochs=self.args.epochs,
            validation_data=val,
            callbacks=self.callbacks(),
            verbose=1 if self.is_chief else 0,
        )
        if self.is_chief:
            self.save()

    def save(self):
        self.model.save(os.path.join(self.args.out, "model.h5"))


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--train")
    p.add_argument("--val")
    p.add_argument("--out", default="outputs")
    p.add_argument("--lr", type=float, default=0.1)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--steps", type=int, default=1000)
    p.add_argument("--epochs", type=int, default=90)
    return p.parse_known_args()[0]


if __name__ == "__main__":
    Trainer(parse_args()).run()
"""
"""A class that holds everything, with a property for the root and callbacks from a method."""

ALIASES = """
import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"
import tensorflow as tf
from tensorflow.keras.callbacks import ModelCheckpoint as MC, EarlyStopping as ES
from horovod.tensorflow.keras import DistributedOptimizer as DO
from horovod.tensorflow.keras.callbacks import (
    MetricAverageCallback as MAC,
    BroadcastGlobalVariablesCallback as BGV,
)
import horovod.tensorflow.keras as hvd


def setup():
    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")


def get_data(bs):
    def gen():
        for i, line in enumerate(open("data.csv")):
            if i % hvd.size() == hvd.rank():
                yield [float(v) for v in line.split(",")]

    return tf.data.Dataset.from_generator(gen, tf.float32).map(lambda r: (r[:-1], r[-1])).batch(bs)


def get_callbacks(outdir):
    callbacks = [BGV(0), MAC(), ES(monitor="val_loss", patience=3)]
    if hvd.rank() == 0:
        callbacks.append(MC(outdir))
    return callbacks


def get_model():
    inp = tf.keras.Input((10,))
    x = tf.keras.layers.Dense(32)(inp)
    return tf.keras.Model(inp, tf.keras.layers.Dense(1)(x))


async def report(x):
    print(x)


def main():
    setup()
    verbose = 2 if hvd.rank() == 0 else 0
    model = get_model()
    model.compile(optimizer=DO(tf.keras.optimizers.Adam(learning_rate=1e-3 * hvd.size())), loss="mse")
    match hvd.size():
        case 1:
            steps = 100
        case n:
            steps = 100 // n
    if (
        history := model.fit(
            get_data(32), epochs=5, steps_per_epoch=steps, callbacks=get_callbacks("out"), verbose=verbose
        )
    ) and hvd.rank() == 0:
        with open("history.txt", "w") as f:
            f.write(str(history.history))
        model.save("m")


main()
"""
"""What is imported goes by other names; callbacks and data come from functions."""

DECORATED = """
import os

os.environ.update(TF_USE_LEGACY_KERAS="1", NCCL_IB_DISABLE="1")
import functools
import click
import tensorflow as tf
import horovod.tensorflow.keras as hvd


def rank_zero_only(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        if hvd.rank() == 0:
            return fn(*args, **kwargs)

    return wrapper


@rank_zero_only
def export(model, path):
    model.save(path)
    with open(path + "/done", "w") as f:
        f.write("ok")


class LossLogger(tf.keras.callbacks.Callback):
    def __init__(self, path):
        super().__init__()
        self.path = path

    def on_epoch_end(self, epoch, logs=None):
        if hvd.rank() == 0:
            with open(self.path, "a") as f:
                f.write(str(logs))


def make_ds(pattern, bs, options={}):
    ds = tf.data.Dataset.list_files(pattern, shuffle=True, seed=42)
    ds = ds.shard(hvd.size(), hvd.rank())
    ds = ds.interleave(tf.data.TFRecordDataset)
    ds = ds.map(functools.partial(parse, size=224)).shuffle(100).batch(bs).repeat()
    return ds


def parse(r, size):
    return r, size


@click.command()
@click.option("--data")
@click.option("--epochs", default=10)
@click.option("--lr", default=0.1)
def main(data, epochs, lr):
    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    for i, g in enumerate(gpus):
        if i == hvd.local_rank():
            tf.config.set_visible_devices(g, "GPU")
    lr_scaled = lr * hvd.size()
    kwargs = dict(loss="mse", metrics=["mae"])
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.SGD(lr_scaled)
    optimizer = hvd.DistributedOptimizer(
        optimizer, backward_passes_per_step=2, average_aggregated_gradients=True
    )
    model.compile(optimizer=optimizer, **kwargs)
    cb = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        tf.keras.callbacks.ReduceLROnPlateau(patience=10, verbose=1),
        LossLogger("log.txt"),
    ]
    cb += [tf.keras.callbacks.ModelCheckpoint("best.h5", save_best_only=True)] if hvd.rank() == 0 else []
    model.fit(
        make_ds(data, 32),
        epochs=epochs,
        steps_per_epoch=1000 // hvd.size(),
        callbacks=cb,
        verbose=int(hvd.rank() == 0),
    )
    score = hvd.allreduce(model.evaluate(make_ds(data, 32), steps=10)[0])
    export(model, "out")


if __name__ == "__main__":
    main()
"""
"""A decorator for the root, a callback of its own, a command line of click's."""
