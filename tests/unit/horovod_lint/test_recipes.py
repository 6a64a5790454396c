"""Scripts with the structure of published recipes for Keras 2: each is judged right, and for the right reason."""

from __future__ import annotations

import pytest

from horovod_lint import Machine, lint_script
from tests.unit.horovod_lint.scripts import found, spoilt

KERAS2 = {"TF_USE_LEGACY_KERAS": "1"}
GPUS = """hvd.init()
gpus = tf.config.experimental.list_physical_devices('GPU')
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
if gpus:
    tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], 'GPU')
"""
FIT = f"""import tensorflow as tf
import horovod.tensorflow.keras as hvd

{GPUS}
(images, labels), _ = tf.keras.datasets.mnist.load_data(path='mnist-%d.npz' % hvd.rank())
dataset = tf.data.Dataset.from_tensor_slices((tf.cast(images[..., tf.newaxis] / 255.0, tf.float32), labels))
dataset = dataset.repeat().shuffle(10000).batch(128)
model = tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(10, activation='softmax')])
rate = 0.001 * hvd.size()
opt = tf.keras.optimizers.RMSprop(rate)
opt = hvd.DistributedOptimizer(opt, backward_passes_per_step=1, average_aggregated_gradients=True)
model.compile(loss='sparse_categorical_crossentropy', optimizer=opt, experimental_run_tf_function=False)
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=rate, warmup_epochs=3, verbose=1),
]
if hvd.rank() == 0:
    callbacks.append(tf.keras.callbacks.ModelCheckpoint('./checkpoint-{{epoch}}.h5'))
model.fit(dataset, steps_per_epoch=500 // hvd.size(), callbacks=callbacks, epochs=24, verbose=hvd.rank() == 0)
"""
"""Keras' `fit` with Horovod's callbacks: every rank draws its share of the steps from all data."""

TAPE = f"""import tensorflow as tf
import horovod.tensorflow as hvd

def main():
    {GPUS.replace(chr(10), chr(10) + "    ")}
    (images, labels), _ = tf.keras.datasets.mnist.load_data(path='mnist-%d.npz' % hvd.rank())
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).repeat().shuffle(10000).batch(128)
    model = tf.keras.Sequential([tf.keras.layers.Dense(10, activation='softmax')])
    loss = tf.losses.SparseCategoricalCrossentropy()
    opt = tf.optimizers.Adam(0.001 * hvd.size())
    checkpoint = tf.train.Checkpoint(model=model, optimizer=opt)

    @tf.function
    def training_step(images, labels, first_batch):
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape)
        grads = tape.gradient(value, model.trainable_variables)
        opt.apply_gradients(zip(grads, model.trainable_variables))
        if first_batch:
            hvd.broadcast_variables(model.variables, root_rank=0)
            hvd.broadcast_variables(opt.variables(), root_rank=0)
        return value

    for batch, (images, labels) in enumerate(dataset.take(10000 // hvd.size())):
        value = training_step(images, labels, batch == 0)
        if batch % 10 == 0 and hvd.local_rank() == 0:
            print('Step #%d\\tLoss: %.6f' % (batch, value))
    if hvd.rank() == 0:
        checkpoint.save('./checkpoints')

if __name__ == '__main__':
    main()
"""
GENERATOR = """import keras
from keras import backend as K
from keras.preprocessing.image import ImageDataGenerator
import tensorflow as tf
import horovod.keras as hvd

hvd.init()
config = tf.ConfigProto()
config.gpu_options.allow_growth = True
config.gpu_options.visible_device_list = str(hvd.local_rank())
K.set_session(tf.Session(config=config))

batch_size, epochs = 128, 24
(x_train, y_train), (x_test, y_test) = keras.datasets.mnist.load_data()
train_batches, test_batches = len(x_train) // batch_size, len(x_test) // batch_size
model = keras.models.Sequential([keras.layers.Dense(10, activation='softmax')])
opt = keras.optimizers.RMSprop(lr=1e-3 * hvd.size())
opt = hvd.DistributedOptimizer(opt)
model.compile(loss=keras.losses.categorical_crossentropy, optimizer=opt, metrics=['accuracy'])
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(warmup_epochs=5, verbose=1),
    keras.callbacks.ReduceLROnPlateau(patience=10, verbose=1),
]
if hvd.rank() == 0:
    callbacks.append(keras.callbacks.ModelCheckpoint('./checkpoint-{epoch}.h5'))
train_gen = ImageDataGenerator(rotation_range=8, width_shift_range=0.08)
test_gen = ImageDataGenerator()
model.fit_generator(train_gen.flow(x_train, y_train, batch_size=batch_size), callbacks=callbacks, epochs=epochs,
                    steps_per_epoch=train_batches // hvd.size(), workers=4,
                    validation_data=test_gen.flow(x_test, y_test, batch_size=batch_size),
                    validation_steps=3 * test_batches // hvd.size())
score = hvd.allreduce(model.evaluate(x_test, y_test, verbose=0))
"""
"""The recipes of the Batch AI era: Keras 2 with sessions of TensorFlow 1, generators and RMSprop."""

UNWRAPPED = """import math
import keras
from keras import backend as K
import tensorflow as tf
import horovod.keras as hvd

hvd.init()
config = tf.ConfigProto()
config.gpu_options.visible_device_list = str(hvd.local_rank())
K.set_session(tf.Session(config=config))
epochs = int(math.ceil(12.0 / hvd.size()))
(x, y), _ = keras.datasets.cifar10.load_data()
model = keras.applications.densenet.DenseNet121(weights=None)
optimizer = keras.optimizers.Adam(lr=0.001 * hvd.size())
model.compile(optimizer=optimizer, loss='binary_crossentropy')
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
if hvd.rank() == 0:
    callbacks.append(keras.callbacks.ModelCheckpoint('weights.h5'))
model.fit(x, y, batch_size=32, callbacks=callbacks, epochs=epochs, verbose=1 if hvd.rank() == 0 else 0)
"""
"""A widely copied shape: everything of Horovod but the optimizer, so that the ranks never train together."""

FLAGGED = """import os
import logging
import keras
import tensorflow as tf
from keras.preprocessing import image

def _bool(text):
    return text is not None and 'true' in text.lower()

_DISTRIBUTED = _bool(os.getenv('DISTRIBUTED'))
_EPOCHS = int(os.getenv('EPOCHS', 1))
if _DISTRIBUTED:
    import horovod.keras as hvd

def _lr():
    return 0.001 * hvd.size() if _DISTRIBUTED else 0.001

def _is_master(is_distributed=_DISTRIBUTED):
    return hvd.rank() == 0 if is_distributed else True

def _callbacks():
    if not _DISTRIBUTED:
        return []
    return [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback(),
            hvd.callbacks.LearningRateWarmupCallback(warmup_epochs=5)]

def main():
    if _DISTRIBUTED:
        hvd.init()
        config = tf.ConfigProto()
        config.gpu_options.visible_device_list = str(hvd.local_rank())
    train = image.ImageDataGenerator().flow_from_directory(os.getenv('AZ_BATCHAI_INPUT_TRAIN'), batch_size=64)
    opt = keras.optimizers.SGD(lr=_lr(), momentum=0.9)
    if _DISTRIBUTED:
        opt = hvd.DistributedOptimizer(opt)
    model = keras.applications.resnet50.ResNet50(weights=None)
    model.compile(loss='categorical_crossentropy', optimizer=opt)
    callbacks = _callbacks()
    if _is_master():
        callbacks.append(keras.callbacks.ModelCheckpoint('checkpoint-{epoch}.h5'))
    steps = len(train) // hvd.size() if _DISTRIBUTED else len(train)
    model.fit_generator(train, steps_per_epoch=steps, callbacks=callbacks, epochs=_EPOCHS)

if __name__ == '__main__':
    main()
"""
"""Azure's samples for distributed deep learning: one script for one process and for many, by a variable."""


SESSION = """import tensorflow as tf
import horovod.tensorflow as hvd

def batches(images, labels, size):
    while True:
        for start in range(0, len(images) - size, size):
            yield images[start:start + size], labels[start:start + size]

def main(_):
    hvd.init()
    (images, labels), _ = tf.keras.datasets.mnist.load_data('mnist-%d.npz' % hvd.rank())
    image, label = tf.placeholder(tf.float32, [None, 784]), tf.placeholder(tf.int64, [None])
    loss = tf.losses.sparse_softmax_cross_entropy(label, tf.layers.dense(image, 10))
    opt = tf.train.AdamOptimizer(0.001 * hvd.size())
    opt = hvd.DistributedOptimizer(opt)
    step = tf.train.get_or_create_global_step()
    train_op = opt.minimize(loss, global_step=step)
    hooks = [
        hvd.BroadcastGlobalVariablesHook(0),
        tf.train.StopAtStepHook(last_step=20000 // hvd.size()),
    ]
    config = tf.ConfigProto()
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    folder = './checkpoints' if hvd.rank() == 0 else None
    feed = batches(images.reshape(-1, 784), labels, 100)
    with tf.train.MonitoredTrainingSession(checkpoint_dir=folder, hooks=hooks, config=config) as session:
        while not session.should_stop():
            x, y = next(feed)
            session.run(train_op, feed_dict={image: x, label: y})

if __name__ == '__main__':
    tf.app.run()
"""
"""A session of TensorFlow 1 that hooks stop and broadcast in."""

CHOSEN = "    if hvd.rank() == 0:\n        folder = 'x'\n    else:\n        folder = None\n"

ESTIMATOR = """import os
import tensorflow as tf

_DISTRIBUTED = os.getenv('DISTRIBUTED', 'False') == 'True'
if _DISTRIBUTED:
    import horovod.tensorflow as hvd

def _optimizer(rate, is_distributed=_DISTRIBUTED):
    if is_distributed:
        return hvd.DistributedOptimizer(tf.train.MomentumOptimizer(learning_rate=rate * hvd.size(), momentum=0.9))
    else:
        return tf.train.MomentumOptimizer(learning_rate=rate, momentum=0.9)

def _folder(is_distributed=_DISTRIBUTED):
    if is_distributed:
        return os.getenv('AZ_BATCHAI_OUTPUT_MODEL') if hvd.rank() == 0 else os.getenv('AZ_BATCHAI_JOB_TEMP_DIR')
    return os.getenv('AZ_BATCHAI_OUTPUT_MODEL')

def _hooks(is_distributed=_DISTRIBUTED):
    return [hvd.BroadcastGlobalVariablesHook(0)] if is_distributed else []

def _config():
    config = tf.ConfigProto()
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    return tf.estimator.RunConfig(session_config=config)

def model_fn(features, labels, mode, params):
    loss = tf.losses.sparse_softmax_cross_entropy(labels, tf.layers.dense(features, 1000))
    train_op = _optimizer(params['rate']).minimize(loss, global_step=tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode=mode, loss=loss, train_op=train_op)

def input_fn():
    files = tf.data.Dataset.list_files(os.getenv('AZ_BATCHAI_INPUT_TRAIN') + '/*')
    return tf.data.TFRecordDataset(files).repeat().batch(64).make_one_shot_iterator().get_next()

def main():
    if _DISTRIBUTED:
        hvd.init()
    model = tf.estimator.Estimator(model_fn=model_fn, params={'rate': 0.001}, model_dir=_folder(), config=_config())
    model.train(input_fn=input_fn, steps=1281167 // (64 * hvd.size()), hooks=_hooks())

if __name__ == '__main__':
    main()
"""
"""An estimator of TensorFlow 1, as Azure's samples have it: one script with and without Horovod."""

BENCHMARK = f"""import timeit
import tensorflow as tf
import horovod.tensorflow as hvd
from tensorflow.keras import applications

{GPUS}
model = getattr(applications, 'ResNet50')(weights=None)
opt = tf.optimizers.SGD(0.01)
data = tf.random.uniform([32, 224, 224, 3])
target = tf.random.uniform([32, 1], minval=0, maxval=999, dtype=tf.int64)

@tf.function
def benchmark_step(first_batch):
    with tf.GradientTape() as tape:
        loss = tf.losses.sparse_categorical_crossentropy(target, model(data, training=True))
    tape = hvd.DistributedGradientTape(tape, compression=hvd.Compression.fp16)
    gradients = tape.gradient(loss, model.trainable_variables)
    opt.apply_gradients(zip(gradients, model.trainable_variables))
    if first_batch:
        hvd.broadcast_variables(model.variables, root_rank=0)
        hvd.broadcast_variables(opt.variables(), root_rank=0)

def log(text):
    if hvd.rank() != 0:
        return
    print(text)

benchmark_step(first_batch=True)
for number in range(10):
    seconds = timeit.timeit(lambda: benchmark_step(first_batch=False), number=10)
    log('Iter #%d: %.1f img/sec' % (number, 320 / seconds))
"""
"""A benchmark on random images, with one step for all batches."""

BROADCASTS = BENCHMARK[BENCHMARK.index("    if first_batch") : BENCHMARK.index("\ndef log")]
TORCH = """import torch
import torch.nn.functional as F
import torch.utils.data.distributed
from torchvision import models
import horovod.torch as hvd

def save_checkpoint(model, optimizer, path):
    if hvd.rank() == 0:
        state = {'model': model.state_dict(), 'optimizer': optimizer.state_dict()}
        torch.save(state, path)

def main(dataset):
    hvd.init()
    torch.cuda.set_device(hvd.local_rank())
    sampler = torch.utils.data.distributed.DistributedSampler(dataset, num_replicas=hvd.size(), rank=hvd.rank())
    loader = torch.utils.data.DataLoader(dataset, batch_size=64, sampler=sampler)
    model = models.resnet50().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001 * hvd.size(), momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    for epoch in range(90):
        sampler.set_epoch(epoch)
        for data, target in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(data.cuda()), target.cuda()).backward()
            optimizer.step()
        save_checkpoint(model, optimizer, 'checkpoint-%d.pt' % epoch)
"""
"""Horovod for PyTorch, of which the lint does not follow everything, which it says itself."""


BROKEN = {
    FIT: ["callback_incompatible", "callback_incompatible"],
    TAPE: [],
    GENERATOR: ["keras3_incompatible"],
    FLAGGED: ["keras3_incompatible"],
    UNWRAPPED: ["keras3_incompatible"],
}
"""What fails in Landfall's image although Keras 2 is selected: callbacks, and the package `keras`: it is Keras 3."""


@pytest.mark.parametrize("script", [FIT, TAPE, GENERATOR, FLAGGED])
def test_recipes_are_right_but_for_the_installed_keras(script: str) -> None:
    """Each rank draws its share of the steps from all data, which is advice, and on Keras 3 none of them works."""
    assert sorted([*BROKEN[script], "data_sampled"]) == sorted(found(script, **KERAS2))
    assert {"data_sampled", "keras3_incompatible"} == set(found(script))


def test_a_recipe_is_clean_after_its_callbacks_were_corrected() -> None:
    """They are corrected as the finding says."""
    backends = "for each in callbacks:\n    each.backend = tf.keras.backend\nmodel.fit("
    changes = [("warmup_epochs=3,", "warmup_epochs=3, momentum_correction=False,"), ("model.fit(", backends)]
    assert ["data_sampled"] == found(spoilt(FIT, *changes), **KERAS2)


@pytest.mark.parametrize(
    ("script", "change", "expected"),
    [
        (FIT, ("opt = hvd.DistributedOptimizer(opt, ", "unused = dict("), "optimizer_not_distributed"),
        (FIT, ("    hvd.callbacks.BroadcastGlobalVariablesCallback(0),\n", ""), "no_initial_broadcast"),
        (TAPE, ("        tape = hvd.DistributedGradientTape(tape)\n", ""), "tape_not_distributed"),
        (TAPE, ("if hvd.rank() == 0:\n        checkpoint", "if True:\n        checkpoint"), "written_by_every_rank"),
        (GENERATOR, ("opt = hvd.DistributedOptimizer(opt)\n", ""), "optimizer_not_distributed"),
        (GENERATOR, ("    hvd.callbacks.MetricAverageCallback(),\n", ""), "metrics_not_averaged"),
        (GENERATOR, ("hvd.local_rank()", "hvd.rank()"), "wrong_gpu"),
        (FLAGGED, ("        opt = hvd.DistributedOptimizer(opt)\n", "        pass\n"), "optimizer_not_distributed"),
        (FLAGGED, ("    if _is_master():\n", "    if callbacks:\n"), "written_by_every_rank"),
    ],
)  # fmt: skip
def test_one_mistake_in_a_recipe_is_one_error(script: str, change: tuple[str, str], expected: str) -> None:
    """RMSprop is like any other optimizer, and a variable that turns Horovod on hides nothing."""
    assert sorted([*BROKEN[script], "data_sampled", expected]) == sorted(found(spoilt(script, change), **KERAS2))


@pytest.mark.parametrize(
    ("script", "change", "expected"),
    [
        (SESSION, ("tf.app.run()", "tf.app.run(main)"), []),
        (SESSION, ("    opt = hvd.DistributedOptimizer(opt)\n", ""), ["optimizer_not_distributed"]),
        (SESSION, ("        hvd.BroadcastGlobalVariablesHook(0),\n", ""), ["no_initial_broadcast"]),
        (SESSION, (" if hvd.rank() == 0 else None", ""), ["written_by_every_rank"]),
        (SESSION, ("    folder = './checkpoints' if hvd.rank() == 0 else None\n", CHOSEN), []),
        (SESSION, ("hvd.local_rank()", "hvd.rank()"), ["wrong_gpu"]),
        (ESTIMATOR, ("'rate': 0.001", "'rate': 0.01"), []),
        (ESTIMATOR, ("[hvd.BroadcastGlobalVariablesHook(0)] if is_distributed else []", "[]"),
         ["no_initial_broadcast"]),
        (ESTIMATOR, ("model_dir=_folder()", "model_dir='model'"), ["written_by_every_rank"]),
        (ESTIMATOR, ("model_dir=_folder()", "model_dir=None"), []),
        (BENCHMARK, ("range(10)", "range(9)"), []),
        (BENCHMARK, ("    tape = hvd.DistributedGradientTape(tape, compression=hvd.Compression.fp16)\n", ""),
         ["tape_not_distributed"]),
        (BENCHMARK, (BROADCASTS, ""), ["no_initial_broadcast"]),
        (BENCHMARK, ("hvd.init()\n", ""), ["missing_init"]),
        (TORCH, ("range(90)", "range(9)"), ["framework_partly_checked"]),
        (TORCH, ("        torch.save(state, path)", "    torch.save(state, path)"),
         ["framework_partly_checked", "written_by_every_rank"]),
        (TORCH, ("    optimizer = hvd.Distr", "    unused = hvd.Distr"),
         ["framework_partly_checked", "optimizer_not_distributed"]),
        (TORCH, ("set_device(hvd.local_rank())", "set_device(hvd.rank())"),
         ["framework_partly_checked", "wrong_gpu"]),
    ],
)  # fmt: skip
def test_recipes_for_other_loops_are_right_and_one_mistake_is_one_error(
    script: str, change: tuple[str, str], expected: list[str]
) -> None:
    """Sessions and estimators of TensorFlow 1, a benchmark, and PyTorch; each finding says why it matters."""
    changed = spoilt(script, change).encode()
    findings = lint_script(changed, "train.py", Machine(environment=KERAS2)).findings
    assert expected == sorted(finding.code for finding in findings)
    assert all(finding.why and finding.fix for finding in findings)


def test_an_optimizer_that_is_never_wrapped_is_found_with_the_rest() -> None:
    """The reasons say what happens: no gradient is averaged, all ranks read the same data, and epochs are missing."""
    codes = {"epochs_divided", "optimizer_not_distributed", "data_not_sharded", *BROKEN[UNWRAPPED]}
    assert codes == set(found(UNWRAPPED, **KERAS2))
    report = lint_script(UNWRAPPED.encode(), "train.py")
    reasons = {str(finding.code): (finding.message, finding.why) for finding in report.findings}
    assert ("compile uses a plain optimizer", True) == (
        reasons["optimizer_not_distributed"][0],
        reasons["optimizer_not_distributed"][1].startswith("Gradients are not averaged: each rank trains a separate"),
    )
    assert reasons["epochs_divided"][0] == "the number of epochs is 12.0 / hvd.size()"
