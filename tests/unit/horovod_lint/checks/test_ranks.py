"""What every rank must do, and what only one rank may do."""

from __future__ import annotations

import pytest

from horovod_lint import lint_script
from tests.unit.horovod_lint.scripts import FIT, TAPE, found, places, spoilt

ROOT_ONLY = 'if hvd.rank() == 0:\n    model.save("outputs/final.h5")\n'
EARLY = "    tf.keras.callbacks.EarlyStopping(patience=3),\n"
AVERAGE = "    average,\n"
AVERAGING_CALLBACK = """
class Average(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        logs["loss"] = hvd.allreduce(logs["loss"])

callbacks = ["""
BROADCAST = "    hvd.callbacks.BroadcastGlobalVariablesCallback(0),\n"


@pytest.mark.parametrize(
    "write",
    [
        'model.save("outputs/final.h5")',
        'model.save_weights("outputs/w.h5")',
        'model.export("outputs/saved_model")',
        'model.export(filepath="outputs/saved_model", verbose=False)',
        'archive = tf.keras.export.ExportArchive()\narchive.write_out("outputs/saved_model")',
        'tf.keras.models.save_model(model, "outputs")',
        'tf.saved_model.save(model, "outputs")',
        'with open("outputs/metrics.json", "w") as f:\n    f.write("{}")',
        'from pathlib import Path\nPath("outputs/m.txt").write_text("1")',
        'from pathlib import Path\nwith Path("outputs/m.txt").open("w") as f:\n    f.write("1")',
        'import numpy as np\nnp.save("outputs/x.npy", x)',
        'import matplotlib.pyplot as plt\nplt.savefig("outputs/x.png")',
        'def keep(path):\n    model.save(path)\nkeep("outputs/final.h5")',
        'from mine import Net\nnet = Net(model)\nnet.save("outputs/final.h5")',
        'manager = tf.train.CheckpointManager(tf.train.Checkpoint(m=model), "outputs", 3)\nmanager.save()',
        'if hvd.size() > 1:\n    model.save("outputs/final.h5")',
        'loss = model.evaluate(x, y)\nif loss < 1:\n    model.save("outputs/final.h5")',
        'if hvd.rank() == 0 and not gpus:\n    raise FileNotFoundError("data")\nmodel.save("outputs/final.h5")',
    ],
)
def test_a_file_that_every_rank_writes_is_found(write: str) -> None:
    """Models, files and pictures, also in a function that every rank calls."""
    assert ["written_by_every_rank"] == found(spoilt(FIT, (ROOT_ONLY, f"{write}\n")))


@pytest.mark.parametrize(
    "write",
    [
        'if not hvd.rank():\n    model.save("m.h5")',
        'if hvd.rank() != 0:\n    raise SystemExit\nmodel.save("m.h5")',
        'is_root = hvd.rank() == 0\nif is_root and True:\n    model.save("m.h5")',
        'def is_first():\n    return hvd.rank() < 1\nif is_first():\n    model.save("m.h5")',
        'from mine import is_main_process\nif is_main_process():\n    model.save("m.h5")',
        'from mine import CheckpointSaver\nsaver = CheckpointSaver(model)\nsaver.save("m.h5")',
        'hvd.rank() == 0 and model.save("m.h5")',
        'model.save(f"m-{hvd.rank()}.h5")',
        'name = "m-%d.h5" % hvd.rank()\nmodel.save(name)',
        'if hvd.size() == 1:\n    model.save("m.h5")',
        'verbose = 1 if hvd.rank() == 0 else 0\nif verbose:\n    model.save("m.h5")',
        'root = False\nif hvd.rank() == 0:\n    root = True\nif root:\n    model.save("m.h5")',
        'def keep():\n    model.save("m.h5")\nif hvd.rank() == 0:\n    keep()',
        'def keep():\n    if hvd.rank() != 0:\n        return\n    model.save("m.h5")\nkeep()',
        'def only(f):\n    return f if hvd.rank() == 0 else print\n@only\ndef k():\n    model.save("m")\nk()',
        'import tempfile\nwith open(tempfile.mktemp(), "w") as f:\n    f.write("")',
        'with open("m.json") as f:\n    f.read()',
        'if hvd.rank() == 0:\n    model.export("m")',
        "text = model.to_json()\nmodel.export()",
        "import io\nmodel.save(io.BytesIO())",
        'if int(os.environ["OMPI_COMM_WORLD_RANK"]) == 0:\n    model.save("m.h5")',
        "match hvd.rank():\n    case 0:\n        pass",
    ],
)
def test_a_file_that_one_rank_writes_is_accepted(write: str) -> None:
    """There are many ways to select the root, or a path for each rank."""
    assert [] == found(spoilt(FIT, (ROOT_ONLY, f"{write}\n")))


@pytest.mark.parametrize(
    ("callback", "expected"),
    [
        ('tf.keras.callbacks.ModelCheckpoint("m.h5")', ["written_by_every_rank"]),
        ('tf.keras.callbacks.CSVLogger("m.csv")', ["written_by_every_rank"]),
        ('tf.keras.callbacks.TensorBoard("logs")', ["logged_by_every_rank"]),
        ('tf.keras.callbacks.TensorBoard(f"logs/{hvd.rank()}")', []),
        ('*([tf.keras.callbacks.ModelCheckpoint("m.h5")] if hvd.rank() == 0 else [])', []),
        ("tf.keras.callbacks.TerminateOnNaN()", []),
    ],
)
def test_callbacks_that_write(callback: str, expected: list[str]) -> None:
    """They are found in lists of every rank."""
    assert expected == found(spoilt(FIT, (EARLY, f"{EARLY}    {callback},\n")))


def test_a_callback_that_all_create_and_only_the_root_uses_is_not_found() -> None:
    """The list decides that it is added to."""
    made = 'c = tf.keras.callbacks.ModelCheckpoint("m.h5")\nif hvd.rank() == 0:\n    callbacks.append(c)\nmodel.fit'
    assert [] == found(spoilt(FIT, ("model.fit", made)))


def test_metrics_logged_by_every_rank_are_a_warning() -> None:
    """One finding is enough for all MLflow calls."""
    logged = "import mlflow\nmlflow.start_run()\nmlflow.log_metric('a', 1)\nmodel.fit"
    assert ["logged_by_every_rank"] == found(spoilt(FIT, ("model.fit", logged)))
    root = "import mlflow\nif hvd.rank() == 0:\n    mlflow.autolog()\nmodel.fit"
    assert [] == found(spoilt(FIT, ("model.fit", root)))


@pytest.mark.parametrize(
    "changes",
    [
        [(AVERAGE, "")],
        [(AVERAGE, ""), (EARLY, f"{EARLY}{AVERAGE}")],
        [(AVERAGE, ""), (EARLY, "    tf.keras.callbacks.ReduceLROnPlateau(),\n")],
        [(AVERAGE, ""), (EARLY, ""), ("]\nif", f"]\ncallbacks.append({EARLY.strip()[:-1]})\nif")],
        [(AVERAGE, ""), ("]\nif", f"]\ncallbacks += [{AVERAGE.strip()}]\nif")],
        [(AVERAGE, ""), (EARLY, ""), ("save_best_only", "monitor='loss', save_best_only")],
        [(AVERAGE, ""), (EARLY, ""), ("validation_data=(x_val, y_val)", "validation_split=0.1")],
        [(AVERAGE, ""), (EARLY, ""), ("x_val, y_val),", "x_val[hvd.rank() :: 2], y_val[hvd.rank() :: 2]),")],
    ],
)
def test_decisions_on_unaveraged_metrics_are_found(changes: list[tuple[str, str]]) -> None:
    """No callback averages, or it comes too late."""
    assert "metrics_not_averaged" in found(spoilt(FIT, *changes))


@pytest.mark.parametrize(
    "changes",
    [
        [(AVERAGE, ""), ("]\nif", f"]\ncallbacks.insert(0, {AVERAGE.strip()[:-1]})\nif")],
        [(AVERAGE, "    Average(),\n"), ("callbacks = [", AVERAGING_CALLBACK)],
        [(AVERAGE, "    *more(),\n"), ("callbacks = [", "from mine import more\ncallbacks = [")],
        [(AVERAGE, ""), (EARLY, ""), (", save_best_only=True", "")],
        [(AVERAGE, ""), (EARLY, "")],
    ],
)
def test_decisions_on_averaged_metrics_are_accepted(changes: list[tuple[str, str]]) -> None:
    """Averaged first, by a callback of the script, perhaps by a module, no decision, or by the root on all data."""
    assert [] == found(spoilt(FIT, *changes))


def test_a_loop_that_one_rank_may_leave_is_found() -> None:
    """A mean over all ranks would be the same on every rank."""
    script = spoilt(TAPE, ("mean = hvd.allreduce(loss)", "mean = float(loss)"))
    assert [("metrics_not_averaged", "break")] == places(script)


@pytest.mark.parametrize(
    "line",
    [
        "if hvd.rank() == 0:\n    hvd.allreduce(1.0)",
        "if hvd.rank() == 0:\n    print(1)\nelse:\n    hvd.broadcast(1, 0)",
        "def mean():\n    return hvd.allreduce(1.0)\nif hvd.rank() == 0:\n    mean()",
        "def tell():\n    if hvd.rank() != 0:\n        return\n    hvd.allgather([1])\ntell()",
        "root = hvd.rank() == 0\ntotal = hvd.allreduce(1.0) if root else 0",
        "total = (lambda: hvd.allreduce(1.0) if hvd.rank() == 0 else 0)()",
    ],
)
def test_a_collective_call_on_some_ranks_is_found(line: str) -> None:
    """The call is in a branch, after a return, or in a function that only some ranks call."""
    assert ["collective_on_some_ranks"] == found(spoilt(FIT, ("model.fit", f"{line}\nmodel.fit")))


@pytest.mark.parametrize(
    ("between", "second"),
    [
        ("", "if hvd.rank() == 1:\n    hvd.barrier()"),
        ("", "if hvd.rank() == 0:\n    hvd.allreduce(1.0)"),
        ("hvd.allreduce(1.0)", "if hvd.rank() == 0:\n    hvd.barrier()"),
    ],
)
def test_collective_calls_that_do_not_match_are_found(between: str, second: str) -> None:
    """The second condition does not select the other ranks, they call something else, or something is in between."""
    line = f"if hvd.rank() != 0:\n    hvd.barrier()\n{between}\n{second}"
    assert ["collective_on_some_ranks"] * 2 == found(spoilt(FIT, ("model.fit", f"{line}\nmodel.fit")))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("if hvd.rank() == 0:\n    hvd.barrier()", "runs only on the ranks that hvd.rank() == 0 selects"),
        ("if hvd.rank() == 0:\n    pass\nelse:\n    hvd.barrier()", "does not run on the ranks that hvd.rank() == 0"),
        ("if hvd.rank() > 0:\n    raise SystemExit\nhvd.barrier()", "does not run on the ranks that hvd.rank() > 0"),
        ("hvd.rank() == 0 or hvd.barrier()", "does not run on the ranks that hvd.rank() == 0 selects"),
        ("hvd.rank() == 0 and hvd.barrier()", "runs only on the ranks that hvd.rank() == 0 selects"),
    ],
)
def test_the_message_names_the_ranks_that_make_the_call(line: str, expected: str) -> None:
    """The condition selects them, or those that do not make it."""
    script = f"import horovod.tensorflow as hvd\nhvd.init()\n{line}\n"
    findings = lint_script(script.encode(), "mine.py").findings
    assert [True] == [expected in finding.message for finding in findings]


def test_a_broadcast_in_the_roots_list_alone_is_found() -> None:
    """The other ranks never take part in it."""
    root = "if hvd.rank() == 0:\n    callbacks.append(hvd.callbacks.BroadcastGlobalVariablesCallback(0))\n"
    script = spoilt(FIT, (BROADCAST, ""), ("if hvd.rank() == 0:\n    callbacks.append(tf.keras.callbacks.ModelC",
                    root + "if hvd.rank() == 0:\n    callbacks.append(tf.keras.callbacks.ModelC"))  # fmt: skip
    assert "collective_on_some_ranks" in found(script)


@pytest.mark.parametrize(
    "line",
    [
        "if hvd.rank() == 0:\n    n = hvd.broadcast(1, 0)\nelse:\n    n = hvd.broadcast(0, 0)",
        "n = hvd.broadcast(1 if hvd.rank() == 0 else 0, 0)",
        "if hvd.size() > 1:\n    hvd.allreduce(1.0)",
        "if hvd.rank() == 0:\n    print(hvd.size())\nhvd.allreduce(1.0)",
        "if hvd.rank() == 0:\n    print(','.join(['a']))",
        "if hvd.rank() == 0:\n    hvd.allreduce(1.0, process_set=mine)",
        "if hvd.local_rank() != 0:\n    hvd.barrier()\nx = x + 1\nif hvd.local_rank() == 0:\n    hvd.barrier()",
        "if hvd.rank() > 0:\n    hvd.barrier()\nif not hvd.rank():\n    hvd.barrier()",
        "if hvd.local_rank() >= len(gpus):\n    raise RuntimeError('too few GPUs')\nhvd.allreduce(1.0)",
    ],
)
def test_a_collective_call_on_every_rank_is_accepted(line: str) -> None:
    """The call is in both branches, with different values, under a condition on the size, or in a process set."""
    assert [] == found(spoilt(FIT, ("model.fit", f"{line}\nmodel.fit")))
