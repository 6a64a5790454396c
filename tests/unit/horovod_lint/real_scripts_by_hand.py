"""PyTorch and data by hand, in the shapes that teams write them."""

from __future__ import annotations

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
"""After Horovod's own example: a metric that is averaged, a checkpoint that is resumed from."""

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
"""A Sequence of the script's own."""

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
"""A loop by hand, with data and the broadcast in functions."""
