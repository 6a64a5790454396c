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
                initial_lr=self.args.lr * self.world, warmup_epochs=3, momentum_correction=False
            ),
        ]
        for each in cbs: each.backend = tf.keras.backend
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
"""A class for everything, with a property for the root and callbacks from a method."""

ALIASES = """
import os

os.environ["TF_USE_LEGACY_KERAS"] = "1"
import tensorflow as tf
from tensorflow.keras.callbacks import ModelCheckpoint as MC, EarlyStopping as ES
from horovod.tensorflow.keras import DistributedOptimizer as DO
from horovod.tensorflow.keras.callbacks import MetricAverageCallback as MAC, BroadcastGlobalVariablesCallback as BGV
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
    for each in callbacks: each.backend = tf.keras.backend
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
"""Renamed imports; callbacks and data come from functions."""

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
    for each in cb: each.backend = tf.keras.backend
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
"""A decorator for the root, a callback class, a click command line."""


TORCH_LOOP = """
import argparse, os
import torch
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms, models
import horovod.torch as hvd


def log(*args):
    if hvd.rank() == 0:
        print(*args)


class Metric(object):
    def __init__(self, name):
        self.name = name
        self.sum = torch.tensor(0.0)
        self.n = torch.tensor(0.0)

    def update(self, val):
        self.sum += hvd.allreduce(val.detach().cpu(), name=self.name)
        self.n += 1

    @property
    def avg(self):
        return self.sum / self.n


def save_checkpoint(epoch, model, optimizer, fmt):
    if hvd.rank() == 0:
        filepath = fmt.format(epoch=epoch + 1)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, filepath)


def train(epoch, model, optimizer, loader, sampler):
    model.train()
    sampler.set_epoch(epoch)
    m = Metric("loss")
    for data, target in loader:
        data, target = data.cuda(), target.cuda()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
        m.update(loss)
    return m.avg


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--train-dir", default=os.path.expanduser("~/imagenet/train"))
    ap.add_argument("--epochs", type=int, default=90)
    ap.add_argument("--base-lr", type=float, default=0.0125)
    ap.add_argument("--checkpoint-format", default="./checkpoint-{epoch}.pth.tar")
    args = ap.parse_args()
    hvd.init()
    torch.manual_seed(42)
    if torch.cuda.is_available():
        torch.cuda.set_device(hvd.local_rank())
    dataset = datasets.ImageFolder(args.train_dir, transform=transforms.Compose([transforms.ToTensor()]))
    sampler = DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())
    loader = DataLoader(dataset, batch_size=32, sampler=sampler, num_workers=4)
    model = models.resnet50().cuda()
    optimizer = optim.SGD(model.parameters(), lr=args.base_lr * hvd.size(), momentum=0.9)
    resume = 0
    if hvd.rank() == 0 and os.path.exists("x"):
        ck = torch.load("x")
        model.load_state_dict(ck["model"])
        resume = 3
    resume = hvd.broadcast(torch.tensor(resume), root_rank=0, name="resume").item()
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), compression=hvd.Compression.fp16
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    best = 1e9
    for epoch in range(resume, args.epochs):
        loss = train(epoch, model, optimizer, loader, sampler)
        log(f"epoch {epoch}: {loss}")
        if loss < best:
            best = loss
            save_checkpoint(epoch, model, optimizer, args.checkpoint_format)


if __name__ == "__main__":
    main()
"""
"""Like Horovod's own example: an averaged metric, and resuming from a checkpoint."""

SEQUENCE = """
import os, sys

os.environ |= {"TF_USE_LEGACY_KERAS": "1"}
import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers
import horovod.tensorflow.keras as hvd

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
gpus = tf.config.experimental.list_physical_devices("GPU")
if gpus:
    tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")


class Seq(keras.utils.Sequence):
    def __init__(self, x, y, bs, rank=0, size=1):
        self.x, self.y, self.bs = x[rank::size], y[rank::size], bs

    def __len__(self):
        return len(self.x) // self.bs

    def __getitem__(self, i):
        s = slice(i * self.bs, (i + 1) * self.bs)
        return self.x[s], self.y[s]


data = np.load("train.npz")
train_seq = Seq(data["x"], data["y"], 32, rank=RANK, size=SIZE)
model = keras.Sequential([layers.Dense(10)])
opt = hvd.DistributedOptimizer(keras.optimizers.Adam(lr=0.001 * SIZE))
model.compile(loss="categorical_crossentropy", optimizer=opt, metrics=["accuracy"])
cbs = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
if RANK == 0:
    cbs.extend([keras.callbacks.ModelCheckpoint("w-{epoch}.h5"), keras.callbacks.CSVLogger("log.csv")])
model.fit(train_seq, epochs=3, callbacks=cbs, verbose=1 if RANK == 0 else 0)
score = model.evaluate(data["x"], data["y"], verbose=0)
if RANK == 0:
    print(score)
    np.save("score.npy", score)
    os.makedirs("out", exist_ok=True)
    model.save_weights("out/w.h5")
"""
"""A Sequence class of the script."""

LOOP = """
import os, json, time, logging
from pathlib import Path
import numpy as np
import tensorflow as tf
import horovod.tensorflow as hvd
from absl import app, flags

FLAGS = flags.FLAGS
flags.DEFINE_string("data_dir", None, "")
flags.DEFINE_integer("epochs", 10, "")
flags.DEFINE_float("lr", 0.01, "")
log = logging.getLogger(__name__)


def build_dataset(files, batch, train=True):
    ds = tf.data.Dataset.from_tensor_slices(files)
    if train and hvd.size() > 1:
        ds = ds.shard(num_shards=hvd.size(), index=hvd.rank())
    ds = ds.interleave(lambda f: tf.data.TFRecordDataset(f), cycle_length=4)
    if train:
        ds = ds.shuffle(4096, reshuffle_each_iteration=True)
    return ds.map(parse).batch(batch, drop_remainder=True).prefetch(2)


def parse(x):
    return x, x


def broadcast(model, opt):
    hvd.broadcast_variables([v.value for v in model.variables], root_rank=0)
    hvd.broadcast_variables([v.value for v in opt.variables], root_rank=0)


def write_metrics(path, metrics):
    with open(path, "w") as f:
        json.dump(metrics, f)


def main(argv):
    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    [tf.config.experimental.set_memory_growth(g, True) for g in gpus]
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
    is_root = hvd.rank() == 0
    train = build_dataset(tf.io.gfile.glob(os.path.join(FLAGS.data_dir, "train*")), 64)
    val = build_dataset(tf.io.gfile.glob(os.path.join(FLAGS.data_dir, "val*")), 64, train=False)
    model = tf.keras.Sequential([tf.keras.layers.Dense(10)])
    opt = tf.keras.optimizers.Adam(FLAGS.lr * hvd.size())
    loss_fn = tf.keras.losses.CategoricalCrossentropy()
    ckpt = tf.train.Checkpoint(model=model, optimizer=opt)
    manager = tf.train.CheckpointManager(ckpt, "ckpt", max_to_keep=3)
    writer = tf.summary.create_file_writer("logs") if is_root else tf.summary.create_noop_writer()

    @tf.function(jit_compile=False)
    def train_step(x, y, first):
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(x, training=True))
        tape = hvd.DistributedGradientTape(tape, compression=hvd.Compression.fp16)
        variables = [v.value for v in model.trainable_variables]
        grads = tape.gradient(loss, variables)
        opt.apply_gradients(zip(grads, model.trainable_variables))
        return loss

    start = time.time()
    for epoch in range(FLAGS.epochs):
        losses = []
        for step, (x, y) in enumerate(train.take(1000 // hvd.size())):
            losses.append(train_step(x, y, step == 0))
            if epoch == 0 and step == 0:
                broadcast(model, opt)
        val_loss = hvd.allreduce(tf.reduce_mean([loss_fn(y, model(x)) for x, y in val]))
        if is_root:
            with writer.as_default():
                tf.summary.scalar("val_loss", val_loss, epoch)
            manager.save()
            write_metrics(Path("outputs") / "metrics.json", {"loss": float(val_loss)})
        if val_loss < 0.01:
            break
    if is_root:
        model.save("outputs/model.keras")


if __name__ == "__main__":
    app.run(main)
"""
"""A hand-written loop, with data and the broadcast in functions."""
