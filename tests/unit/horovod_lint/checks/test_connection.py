"""What connects the ranks: Horovod, its initialisation, its optimizer or tape, the first broadcast."""

from __future__ import annotations

import pytest

from horovod_lint import Machine, lint_script
from tests.unit.horovod_lint.scripts import FIT, TAPE, TORCH, found, places, spoilt

TAPE_BROADCASTS = (
    ("                hvd.broadcast_variables(values(model.variables), root_rank=0)\n", ""),
    ("                hvd.broadcast_variables(values(optimizer.variables), root_rank=0)\n", "                pass\n"),
)
ALONE = """
import tensorflow as tf
(x, y), _ = tf.keras.datasets.mnist.load_data()
model = tf.keras.Sequential([tf.keras.layers.Dense(10)])
model.compile(optimizer="adam", loss="mse")
model.fit(x, y, epochs=3)
"""


@pytest.mark.parametrize("script", [TAPE, FIT], ids=["tape", "fit"])
def test_sound_scripts_are_clean(script: str) -> None:
    """They have no findings."""
    assert [] == found(script)


def test_a_sound_pytorch_script_gets_advice_that_it_is_partly_checked() -> None:
    """Advice leaves a script clean."""
    assert ["framework_partly_checked"] == found(TORCH)


def test_without_horovod_every_rank_trains_alone() -> None:
    """The finding is at the training call."""
    assert [("horovod_not_used", "model.fit(x, y, epochs=3)")] == places(ALONE)


@pytest.mark.parametrize(
    "line", ["from mine import connect", "from mpi4py import MPI", "import torch.distributed", "from .x import y"]
)
def test_what_may_connect_the_ranks_elsewhere_is_not_judged(line: str) -> None:
    """A module of the author may do anything."""
    assert [] == found(f"{line}\n{ALONE}")


def test_a_strategy_of_tensorflow_is_not_for_mpi() -> None:
    """Unless the script sets TF_CONFIG."""
    script = ALONE.replace("model = ", "strategy = tf.distribute.MirroredStrategy()\nmodel = ")
    assert [("tf_distribute", "strategy = tf.distribute.MirroredStrategy()")] == places(script)
    configured = script.replace("strategy =", "import os\nos.environ['TF_CONFIG'] = str(1)\nstrategy =")
    assert [] == found(configured)


def test_under_other_launchers_something_else_connects_the_ranks() -> None:
    """A script without Horovod is not judged, TensorFlow's strategy is right for TensorFlow, and Horovod is wrong."""

    def codes(script: str, distribution: str) -> list[str]:
        report = lint_script(script.encode(), "mine.py", Machine(distribution=distribution))
        return [str(finding.code) for finding in report.findings]

    strategy = ALONE.replace("model = ", "strategy = tf.distribute.MultiWorkerMirroredStrategy()\nmodel = ")
    assert [[], [], []] == [codes(ALONE, "tensorflow"), codes(ALONE, "pytorch"), codes(strategy, "tensorflow")]
    assert ["tf_distribute"] == codes(strategy, "pytorch")
    assert "horovod_without_mpi" in codes(TAPE, "tensorflow")


@pytest.mark.parametrize(
    ("script", "line"), [(TAPE, "    hvd.init()\n"), (FIT, "hvd.init()\n"), (TORCH, "hvd.init()\n")]
)
def test_a_missing_init_is_found(script: str, line: str) -> None:
    """This holds for every framework."""
    assert "missing_init" in found(spoilt(script, (line, "")))


@pytest.mark.parametrize(
    "started",
    [
        "def start():\n    hvd.init()\nstart()",
        "begin = hvd.init\nbegin()",
        "from horovod.tensorflow import init as go\ngo()",
        "from mine import setup_horovod\nsetup_horovod()",
        "from mine import distributed\ndistributed.initialize()",
    ],
)
def test_an_indirect_init_is_not_missing(started: str) -> None:
    """A function of the script calls it, another name refers to it, or perhaps a module calls it."""
    assert [] == [code for code in found(spoilt(FIT, ("hvd.init()", started))) if "init" in code]


def test_a_use_before_init_is_found() -> None:
    """Only the same scope counts: the body of a function runs when it is called."""
    early = spoilt(FIT, ("hvd.init()\n", "print(hvd.rank())\nhvd.init()\n"))
    assert [("used_before_init", "print(hvd.rank())")] == places(early)
    defined = spoilt(FIT, ("hvd.init()\n", "def tell():\n    print(hvd.rank())\nhvd.init()\n"))
    assert [] == found(defined)


@pytest.mark.parametrize(
    ("name", "imported"),
    [
        ("hvd.", "import horovod.tensorflow.keras as h\nhvd = h"),
        ("hvd.", "from horovod.tensorflow import keras as hvd"),
        ("hvd.", "try:\n    import horovod.tensorflow.keras as hvd\nexcept ImportError:\n    hvd = None"),
        ("horovod.tensorflow.keras.", "import horovod.tensorflow.keras"),
        (
            "",
            "from horovod.tensorflow.keras import init, rank, size, local_rank, DistributedOptimizer, callbacks as c",
        ),
    ],
)
def test_horovod_is_known_by_any_name(name: str, imported: str) -> None:
    """Aliases, plain imports and imported functions mean the same."""
    script = FIT.replace("import horovod.tensorflow.keras as hvd", imported)
    if name != "hvd.":
        script = script.replace("hvd.callbacks.", "c." if not name else f"{name}callbacks.").replace("hvd.", name)
    assert [] == found(script)
    assert ["missing_init"] == found(spoilt(script, (f"\n{name}init()\n", "\n")))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ([("optimizer = hvd.DistributedOptimizer(optimizer)\n", "")], "model.compile(optimizer=optimizer"),
        ([("optimizer = hvd.Dist", "wrapped = hvd.Dist")], "model.compile(optimizer=optimizer"),
        ([("optimizer = hvd.Dist", "hvd.Dist")], "model.compile(optimizer=optimizer"),
        ([("optimizer=optimizer", "optimizer='adam'")], "model.compile(optimizer='adam'"),
        ([("optimizer=optimizer, ", "")], "model.compile(loss="),
    ],
)
def test_an_optimizer_that_is_not_horovods_is_found(changes: list[tuple[str, str]], line: str) -> None:
    """It is not wrapped, or another optimizer is compiled than the wrapped one."""
    ((code, place),) = [each for each in places(spoilt(FIT, *changes)) if each[0].startswith("optimizer")]
    assert ("optimizer_not_distributed", True) == (code, place.startswith(line))


@pytest.mark.parametrize(
    "compiled",
    [
        "optimizer=make()",
        "optimizer=tf.keras.mixed_precision.LossScaleOptimizer(optimizer)",
        "optimizer=optimizer if hvd.size() > 1 else 'sgd'",
        "**settings",
    ],
)
def test_an_optimizer_that_is_or_may_be_horovods_is_accepted(compiled: str) -> None:
    """Created in a function, wrapped once more, or passed in a mapping."""
    made = "def make():\n    return hvd.DistributedOptimizer(optimizer)\nsettings = {}\nmodel.compile"
    assert [] == found(spoilt(FIT, ("model.compile", made), ("optimizer=optimizer", compiled)))


@pytest.mark.parametrize(
    "changes",
    [
        [("        tape = hvd.DistributedGradientTape(tape)\n", "")],
        [("        tape = hvd.Dist", "        other = hvd.Dist")],
        [("        tape = hvd.Dist", "        hvd.Dist")],
    ],
)
def test_a_plain_tape_is_found(changes: list[tuple[str, str]]) -> None:
    """Never wrapped, or the wrapped tape is not used."""
    gradient = "gradients = tape.gradient(loss, values(model.trainable_variables))"
    assert [("tape_not_distributed", gradient)] == places(spoilt(TAPE, *changes))


@pytest.mark.parametrize(
    "change",
    [
        ("with tf.GradientTape() as tape:", "with hvd.DistributedGradientTape(tf.GradientTape()) as tape:"),
        (
            "        return loss\n",
            "        return loss\n\n    with tf.GradientTape() as t:\n        t.gradient(1, [2])\n",
        ),
        (
            "gradients = tape.gradient(loss, values(model.trainable_variables))\n",
            "gradients = [hvd.allreduce(g) for g in tape.gradient(loss, values(model.trainable_variables))]\n",
        ),
    ],
)
def test_a_tape_that_is_averaged_or_only_inspected_is_accepted(change: tuple[str, str]) -> None:
    """Averaged by another Horovod call, averaged by hand, or never applied."""
    assert [] == found(spoilt(TAPE, change))


@pytest.mark.parametrize(
    ("script", "changes", "line"),
    [
        (TAPE, TAPE_BROADCASTS, "optimizer.apply_gradients(zip(gradients, model.trainable_variables))"),
        (FIT, [("    hvd.callbacks.BroadcastGlobalVariablesCallback(0),\n", "")], "model.fit("),
        (
            TORCH,
            [
                ("hvd.broadcast_parameters(model.state_dict(), root_rank=0)\n", ""),
                ("hvd.broadcast_optimizer_state(optimizer, root_rank=0)\n", ""),
            ],
            "loss.backward()",
        ),
    ],
)
def test_a_missing_broadcast_is_found(script: str, changes: list[tuple[str, str]], line: str) -> None:
    """The finding is at the training call."""
    named = [place for code, place in places(spoilt(script, *changes)) if code == "no_initial_broadcast"]
    assert [True] == [place.startswith(line) for place in named]


def test_the_same_seed_on_every_rank_needs_no_broadcast() -> None:
    """A seed that contains the rank does."""
    silent = spoilt(FIT, ("    hvd.callbacks.BroadcastGlobalVariablesCallback(0),\n", ""))
    assert [] == found(spoilt(silent, ("hvd.init()\n", "hvd.init()\ntf.keras.utils.set_random_seed(1)\n")))
    differing = spoilt(silent, ("hvd.init()\n", "hvd.init()\ntf.keras.utils.set_random_seed(1 + hvd.rank())\n"))
    assert ["no_initial_broadcast"] == found(differing)


def test_pytorch_without_horovods_optimizer_is_found() -> None:
    """A plain optimizer does not average gradients."""
    named = [("optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())\n", "")]
    assert ["framework_partly_checked", "optimizer_not_distributed"] == found(spoilt(TORCH, *named))


WRAP = "optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())\n"


@pytest.mark.parametrize(
    ("change", "is_found"),
    [
        ((WRAP, f"wrapped = {WRAP.partition('= ')[2]}"), True),
        ((WRAP, f"plain = torch.optim.Adam([])\n{WRAP}plain.step()\n"), True),
        ((WRAP, f"plain = torch.optim.Adam([])\n{WRAP}scaler.step(plain)\n"), True),
        ((WRAP, f"{WRAP}scaler.step(optimizer)\n"), False),
        ((WRAP, f"{WRAP}rates = torch.optim.lr_scheduler.StepLR(optimizer, 1)\nrates.step()\n"), False),
        ((WRAP, f"if hvd.size() > 1:\n    {WRAP}"), False),
        ((WRAP, f"plain = make(torch)\n{WRAP}plain.step()\n"), False),
        ((WRAP, f"wrapped = {WRAP.partition('= ')[2]}hvd.allreduce(model.weight.grad)\n"), False),
    ],
)
def test_a_plain_optimizer_of_pytorch_beside_the_wrapped_one_is_found(
    change: tuple[str, str], *, is_found: bool
) -> None:
    """The optimizer that Horovod wraps is the one that must step; what may be averaged otherwise is accepted."""
    findings = lint_script(spoilt(TORCH, change).encode(), "mine.py").findings
    messages = [each.message for each in findings if each.code == "optimizer_not_distributed"]
    assert is_found == (len(messages) == 1), messages
    assert all(each.startswith("step is called on a plain optimizer; the optimizer that line ") for each in messages)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("tf.keras.optimizers.SGD(0.1)", ["optimizer_not_distributed"]),
        ("tf.compat.v1.train.AdamOptimizer(0.1)", ["optimizer_not_distributed"]),
        ("hvd.DistributedOptimizer(tf.compat.v1.train.AdamOptimizer(0.1))", []),
        ("make_optimizer()", []),
    ],
)
def test_a_plain_optimizer_that_minimizes_is_found(made: str, expected: list[str]) -> None:
    """It computes and applies gradients at once."""
    script = f"import tensorflow as tf\nimport horovod.tensorflow as hvd\nhvd.init()\n({made}).minimize(print, [])\n"
    assert expected == found(script)


def test_batches_trained_one_by_one_are_a_training() -> None:
    """train_on_batch is checked like fit."""
    start, end = FIT.index("model.fit("), FIT.index("if hvd.rank() == 0:\n    model.save")
    script = FIT[:start] + "model.train_on_batch(x, y)\n" + FIT[end:]
    plain = spoilt(script, ("optimizer = hvd.DistributedOptimizer(optimizer)\n", ""))
    assert ["optimizer_not_distributed"] == [code for code in found(plain) if code.startswith("optimizer")]
    unshared = spoilt(script, ("x, y = x[hvd.rank()::hvd.size()], y[hvd.rank()::hvd.size()]\n", ""))
    assert "data_not_sharded" in found(unshared)


DEEPSPEED = """
import argparse
import os
import deepspeed
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))
args, _ = parser.parse_known_args()
deepspeed.init_distributed()
torch.cuda.set_device(args.local_rank)
model = torch.nn.Linear(784, 10)
engine, _, loader, _ = deepspeed.initialize(args=args, model=model, model_parameters=model.parameters())
for images, labels in loader:
    loss = torch.nn.functional.cross_entropy(engine(images), labels)
    engine.backward(loss)
    engine.step()
engine.save_checkpoint(os.environ["LANDFALL_CHECKPOINT"])
"""


@pytest.mark.parametrize("distribution", ["pytorch", "mpi"])
def test_a_script_of_deepspeed_has_no_rule_of_horovods(distribution: str) -> None:
    """It finds the other ranks by the variables of PyTorch, or by those of Open MPI."""
    machine = Machine(vm_size="Standard_NC24rs_v3", distribution=distribution)
    assert () == lint_script(DEEPSPEED.encode(), "mine.py", machine).findings
