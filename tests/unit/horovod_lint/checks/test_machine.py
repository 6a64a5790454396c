"""Checks of what depends on the machine and the job."""

from __future__ import annotations

import pytest

from horovod_lint import Machine, lint_script
from tests.unit.horovod_lint.scripts import FIT, TAPE, TORCH, found, places, spoilt

PIN = '    tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")\n'


def test_a_process_without_a_gpu_of_its_own_is_a_warning() -> None:
    """Only VM sizes with several GPUs need the choice."""
    script = spoilt(FIT, (PIN, "    pass\n"))
    assert [("gpu_not_pinned", "hvd.init()")] == places(script)
    assert ["gpu_not_pinned"] == found(script, vm_size="Standard_NC24rs_v3")
    assert [] == found(script, vm_size="Standard_NC6s_v3")
    assert [] == found(script, CUDA_VISIBLE_DEVICES="0")


@pytest.mark.parametrize(
    "pinned",
    [
        'os.environ["CUDA_VISIBLE_DEVICES"] = str(hvd.local_rank())',
        'os.environ["CUDA_VISIBLE_DEVICES"] = "-1"',
        'tf.config.set_visible_devices([], "GPU")',
        "from mine import pin_gpu\npin_gpu()",
        "config = tf.compat.v1.ConfigProto()\nconfig.gpu_options.visible_device_list = str(hvd.local_rank())",
        'print(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"])',
    ],
)
def test_a_gpu_may_be_picked_in_other_ways(pinned: str) -> None:
    """The ways are the environment, a configuration, an imported function, or not using one."""
    assert [] == found(spoilt(FIT, (PIN, "    pass\n"), ("model = ", f"{pinned}\nmodel = ")))


@pytest.mark.parametrize(
    ("script", "change"),
    [
        (FIT, ("gpus[hvd.local_rank()]", "gpus[hvd.rank()]")),
        (TORCH, ("set_device(hvd.local_rank())", "set_device(hvd.rank())")),
    ],
)
def test_a_gpu_by_the_rank_within_the_job_is_found(script: str, change: tuple[str, str]) -> None:
    """The rank modulo the number of GPUs is accepted."""
    assert "wrong_gpu" in found(spoilt(script, change))
    assert "wrong_gpu" not in found(spoilt(FIT, ("gpus[hvd.local_rank()]", "gpus[hvd.rank() % 4]")))


@pytest.mark.parametrize(
    "line",
    [
        'os.environ["NCCL_IB_DISABLE"] = "1"',
        'os.environ.setdefault("NCCL_IB_DISABLE", "1")',
        'os.environ.update({"NCCL_IB_DISABLE": "1"})',
        'os.environ.update(NCCL_IB_DISABLE="1")',
        'os.putenv("NCCL_IB_DISABLE", "1")',
    ],
)
def test_disabled_infiniband_is_a_warning_on_sizes_that_have_it(line: str) -> None:
    """Sizes without InfiniBand and unknown sizes have no finding."""
    script = spoilt(FIT, ("hvd.init()\n", f"{line}\nhvd.init()\n"))
    assert ["infiniband_disabled"] == found(script, vm_size="Standard_ND96asr_v4")
    assert [] == found(script, vm_size="Standard_NC6s_v3")
    assert [] == found(script)


def test_infiniband_disabled_by_the_pipeline_is_a_warning() -> None:
    """Its environment variables override those that Landfall sets."""
    assert ["infiniband_disabled"] == found(FIT, vm_size="Standard_NC24rs_v3", NCCL_IB_DISABLE="1")
    assert [] == found(FIT, vm_size="Standard_NC24rs_v3", NCCL_IB_DISABLE="0")


ON_KERAS_3 = spoilt(FIT, ('os.environ["TF_USE_LEGACY_KERAS"] = "1"\n', ""))


def test_one_finding_names_all_that_breaks() -> None:
    """The finding is at the first use."""
    assert [("keras3_incompatible", "optimizer = hvd.DistributedOptimizer(optimizer)")] == places(ON_KERAS_3)


def test_a_use_in_a_function_that_is_never_called_does_not_count() -> None:
    """The finding is at the first use that runs."""
    unused = "def unused():\n    return hvd.DistributedOptimizer(1)\n\nhvd.init()\n"
    script = spoilt(ON_KERAS_3, ("hvd.init()\n", unused))
    assert [("keras3_incompatible", "optimizer = hvd.DistributedOptimizer(optimizer)")] == places(script)


def test_keras_2_can_be_selected() -> None:
    """The script or its pipeline can select it; importing it does not select it for Horovod's callbacks."""
    assert [] == found(FIT)
    assert [] == found(ON_KERAS_3, TF_USE_LEGACY_KERAS="1")
    assert ["keras3_incompatible"] == found(ON_KERAS_3, TF_USE_LEGACY_KERAS="0")
    assert ["callback_incompatible"] * 2 == found(ON_KERAS_3.replace("import os\n", "import tf_keras\n"))


BACKEND = "average.backend = tf.keras.backend\n"
AVERAGE = "hvd.callbacks.MetricAverageCallback()"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((BACKEND, ""), "MetricAverageCallback calls the backend of Keras 3"),
        (
            (BACKEND, "import keras\naverage.backend = keras.backend\n"),
            "MetricAverageCallback calls the backend of Keras 3",
        ),
        (
            (
                f"average = {AVERAGE}\n",
                f"average = {AVERAGE}\nwarm = hvd.callbacks.LearningRateWarmupCallback(0.1)\n",
            ),
            "LearningRateWarmupCallback calls the backend of Keras 3",
        ),
        (
            (AVERAGE, f"{AVERAGE}\nw = hvd.callbacks.LearningRateScheduleCallback(0.1, 2)\nw.backend = K"),
            "LearningRateScheduleCallback corrects a momentum that is not a variable in Keras 2",
        ),
    ],
)
def test_a_callback_with_the_backend_of_keras_3_is_found(change: tuple[str, str], message: str) -> None:
    """Horovod takes it from the package `keras`, which is Keras 3 also where Keras 2 is selected."""
    (finding,) = lint_script(spoilt(FIT, change).encode(), "mine.py", Machine()).findings
    assert ("callback_incompatible", message) == (finding.code, finding.message)


@pytest.mark.parametrize(
    "change",
    [
        (BACKEND, "for each in [average]:\n    each.backend = tf.keras.backend\n"),
        (BACKEND, "import tf_keras\naverage.backend = tf_keras.backend\n"),
        (
            AVERAGE,
            f"{AVERAGE}\nw = hvd.callbacks.LearningRateWarmupCallback(0.1, momentum_correction=False)\nw.backend = K",
        ),
    ],
)
def test_a_callback_with_a_backend_of_its_own_is_not_found(change: tuple[str, str]) -> None:
    """The backend is set by its name, or in a loop over callbacks."""
    assert [] == found(spoilt(FIT, change))


@pytest.mark.parametrize(
    "changes",
    [
        [("import horovod.tensorflow.keras as hvd", "import horovod.keras as hvd")],
        [("import os\n", "import os\nimport keras\n"), ("tf.keras.optimizers", "keras.optimizers")],
    ],
)
def test_the_package_keras_stays_keras_3(changes: list[tuple[str, str]]) -> None:
    """Its optimizer is not averaged, and Horovod's callbacks for it fail, whatever the variable says."""
    assert ["keras3_incompatible"] == found(spoilt(FIT, *changes))


@pytest.mark.parametrize(
    "change",
    [
        ("tape.gradient(loss, values(model.trainable_variables))", "tape.gradient(loss, model.trainable_variables)"),
        ("broadcast_variables(values(model.variables)", "broadcast_variables(model.variables"),
        ("broadcast_variables(values(optimizer.variables)", "broadcast_variables(optimizer.variables()"),
    ],
)
def test_keras_variables_passed_to_horovod_are_found(change: tuple[str, str]) -> None:
    """Horovod's functions need TensorFlow variables: `variable.value`."""
    assert ["keras3_incompatible"] == found(spoilt(TAPE, change))


def test_the_optimizer_of_horovod_tensorflow_is_found_as_well() -> None:
    """It passes a Keras optimizer to the same code."""
    script = spoilt(ON_KERAS_3, ("import horovod.tensorflow.keras as hvd", "import horovod.tensorflow as hvd"))
    assert ["keras3_incompatible"] == found(script)


def test_an_optimizer_of_tensorflow_1_is_not_found() -> None:
    """It does not depend on Keras."""
    script = """
import tensorflow as tf
import horovod.tensorflow as hvd
hvd.init()
print(hvd.local_rank())
opt = hvd.DistributedOptimizer(tf.compat.v1.train.AdamOptimizer(0.1))
"""
    assert [] == found(script)


def reports_of(script: str, machine: Machine) -> list[str]:
    """Return the findings about the training report."""
    report = lint_script(script.encode(), "mine.py", machine)
    return [f.message for f in report.findings if f.code == "report_not_written"]


@pytest.mark.parametrize("script", [FIT, TAPE, TORCH])
def test_a_script_that_writes_no_report_is_found_where_models_are_registered(script: str) -> None:
    """It would train for nothing; a pipeline without `register`, and a script by itself, need no report."""
    message = "the script trains, but writes no training report, so no model can be registered"
    assert [message] == reports_of(script, Machine(registers=True))
    assert [] == reports_of(script, Machine())


@pytest.mark.parametrize(
    "code",
    [
        "from shared.training_report import TrainingReport",
        "open(folder + '/training_report.json', 'w')",
        "job.report_folder",
        "finish(report=1)",
        "print(f'val_accuracy={accuracy:.4f}')",
        "import mlflow\nmlflow.log_metric('val_accuracy', accuracy)",
        "import mlflow.keras\nmlflow.keras.autolog()",
        "from mlflow import MlflowClient\nMlflowClient().log_batch(run, metrics=found)",
        "from mine import finish",
        "import subprocess",
    ],
)
def test_a_script_that_writes_a_report_or_may_write_one_is_not_found(code: str) -> None:
    """The report may have any name, and be written by modules of the author or by other programs."""
    assert [] == reports_of(f"{code}\n{FIT}", Machine(registers=True))


def test_a_script_that_only_imports_mlflow_writes_no_report() -> None:
    """Parameters are no metrics."""
    script = f"import mlflow\nmlflow.log_param('a', 1)\n{FIT}"
    assert 1 == len(reports_of(script, Machine(registers=True)))


def test_a_script_that_trains_nothing_needs_no_report() -> None:
    """It may only define what another module trains."""
    assert [] == reports_of("import horovod.tensorflow as hvd\nhvd.init()\n", Machine(registers=True))
