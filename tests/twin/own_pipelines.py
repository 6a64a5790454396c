"""Pipelines derived from `steady`, for example two whose jobs wait for a file, and the pipeline of the smoke test."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from tests.support.processes import REPOSITORY

SHIPPED = REPOSITORY / "pipelines"
OWN_SCRIPTS = Path(__file__).parent / "own_scripts"
SOUND = (OWN_SCRIPTS / "small.py").read_text(encoding="utf-8")
AVERAGING = "        tape = hvd.DistributedGradientTape(tape)\n"
CARELESS = SOUND.replace(AVERAGING, "")
KERAS_2 = (OWN_SCRIPTS / "keras2_fit.py").read_text(encoding="utf-8")
SCRIPTS = {
    "sound": SOUND,
    "careless": CARELESS,
    "printing": SOUND.replace(
        'arguments.report.write_text(json.dumps({"val_accuracy": accuracy}))', 'print(f"val_accuracy={accuracy}")'
    ),
    "reading": SOUND.replace(
        'arguments.report.write_text(json.dumps({"val_accuracy": accuracy}))',
        'import mlflow\n\n    mlflow.log_metric("val_accuracy", accuracy)',
    ).replace(
        "    arguments = parser.parse_args()\n",
        '    parser.add_argument("--files", type=Path, required=True)\n    arguments = parser.parse_args()\n'
        '    arguments.steps = int((arguments.files / "settings" / "steps.txt").read_text())\n',
    ),
    "keras3": KERAS_2,
    "keras2": KERAS_2,
    "estimator": (OWN_SCRIPTS / "tf1_estimator.py").read_text(encoding="utf-8"),
}
"""Users' scripts by dataset; `keras3` is a script for Keras 2 that runs with the image's Keras 3."""
VARIABLES = {"keras2": '{TF_USE_LEGACY_KERAS: "1"}'}
"""The environment variables that their pipelines set."""


def write_own_pipelines(folder: Path) -> None:
    """Write these pipelines and their scripts into a folder that contains the pipeline `steady`."""
    (folder / "settings").mkdir()
    (folder / "settings" / "steps.txt").write_text("60")
    for name, script in SCRIPTS.items():
        text = (folder / "steady.yaml").read_text(encoding="utf-8").replace("steady", name)
        text = text.replace("stand_in.py", f"{name}.py").replace("at_least: 0.95", "at_least: 0.7")
        text = text.replace('{PYTHONPATH: ".", STAND_IN_VAL_ACCURACY: "0.99"}', VARIABLES.get(name, "{}"))
        if name == "reading":
            text = text.replace("train:\n", "train:\n  files: [settings/steps.txt]\n")
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
        (folder / "scripts" / f"{name}.py").write_text(script, encoding="utf-8")


def _pinned(package: str) -> str:
    """Return a requirement that pins a package to the version in the training environment."""
    pins = (REPOSITORY / "training_job" / "environment" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return next(f"{pin}\n" for pin in pins if pin.startswith(f"{package}=="))


def write_launched_pipelines(folder: Path) -> None:
    """Write pipelines whose scripts the launchers of TensorFlow, PyTorch and DeepSpeed start; in one, a rank dies."""
    own = {
        "workers": ("multi_worker", "tensorflow", "{}"),
        "sockets": ("sockets", "pytorch", "{}"),
        "widowed": ("sockets", "pytorch", '{SOCKETS_DIES: "1"}'),
        "deepspeed": ("start_deepspeed", "pytorch", '{PYTHONPATH: ".:scripts"}'),
        "unpackable": ("sockets", "pytorch", "{}"),
    }
    (folder / "environments").mkdir()
    (folder / "environments" / "sockets.txt").write_text(_pinned("numpy"))
    (folder / "environments" / "unpackable.txt").write_text("landfall-nosuch==1.0\n")
    for name, (script, distribution, variables) in own.items():
        text = (folder / "steady.yaml").read_text(encoding="utf-8").replace("steady", name)
        text = text.replace("stand_in.py", f"{script}.py\n  distribution: {distribution}")
        text = text.replace('{PYTHONPATH: ".", STAND_IN_VAL_ACCURACY: "0.99"}', variables)
        text = text.replace("at_least: 0.95", "at_least: 0.7").replace("timeout_s: 120", "timeout_s: 600")
        if name == "deepspeed":
            text = text.replace(
                "train:\n", "train:\n  pass_paths: false\n  arguments: [scripts/sockets.py, --deepspeed]\n"
            )
        if name in ("sockets", "unpackable"):
            text = text.replace("train:\n", f"train:\n  environment: {{requirements: environments/{name}.txt}}\n")
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
        (folder / "scripts" / f"{script}.py").write_bytes((OWN_SCRIPTS / f"{script}.py").read_bytes())
    shutil.copytree(OWN_SCRIPTS / "deepspeed", folder / "scripts" / "deepspeed")


def write_swept_pipeline(folder: Path) -> None:
    """Write a pipeline whose argument sets the metric: above 1 the job fails, and with 0.5 it never ends."""
    text = (folder / "steady.yaml").read_text(encoding="utf-8").replace("steady", "swept")
    text = text.replace("stand_in.py", 'swept.py\n  arguments: [--accuracy, "0.1"]').replace(
        "num_nodes: 2", "num_nodes: 1"
    )
    (folder / "swept.yaml").write_text(text.replace("timeout_s: 120", "timeout_s: 600"), encoding="utf-8")
    script = (folder / "scripts" / "stand_in.py").read_text(encoding="utf-8")
    parsed = "    arguments = parser.parse_args()\n"
    asked = '    parser.add_argument("--accuracy", type=float, required=True)\n'
    ends = '    if arguments.accuracy > 1:\n        raise ValueError("there is no such accuracy")\n'
    waits = "    while arguments.accuracy == 0.5:\n        time.sleep(0.2)\n"
    script = script.replace(parsed, asked + parsed + ends + waits)
    script = script.replace('float(os.environ["STAND_IN_VAL_ACCURACY"])', "arguments.accuracy")
    (folder / "scripts" / "swept.py").write_text(script, encoding="utf-8")


def write_late_pipeline(folder: Path) -> None:
    """Write a pipeline with a file that is not published yet into the folder of a running twin."""
    text = (folder / "sockets.yaml").read_text(encoding="utf-8").replace("sockets-model", "late-model")
    text = re.sub(r"^((?:pipeline|dataset): )sockets$", r"\1late", text, flags=re.MULTILINE)
    (folder / "late.txt").write_text("1")
    (folder / "late.yaml").write_text(text.replace("train:\n", "train:\n  files: [late.txt]\n", 1), encoding="utf-8")


NET = """
import keras

def build_model(input_shape, num_outputs):
    return keras.Sequential([keras.layers.Input(input_shape), keras.layers.Dense(num_outputs, use_bias=False)])
"""
"""A model that, with the identity matrix as weights, returns the index of the largest of ten numbers."""
_WEIGHTS = """
import sys, keras, numpy
sys.path.insert(0, sys.argv[1])
from net import build_model
model = build_model((10,), 10)
model.set_weights([numpy.eye(10)])
model.save(sys.argv[1] + "/identity.keras")
"""


def write_pretrained_pipeline(folder: Path, python: Path) -> None:
    """Write a pipeline for Landfall's training that brings its own model and weights, and does not learn.

    ``python`` has Keras; it makes the weights.
    """
    (folder / "brought").mkdir()
    (folder / "brought" / "net.py").write_text(NET, encoding="utf-8")
    subprocess.run([python, "-c", _WEIGHTS, folder / "brought"], check=True, capture_output=True)
    text = (folder / "steady.yaml").read_text(encoding="utf-8").replace("steady", "pretrained")
    text = text.replace("scripts/stand_in.py", "training_job.train\n  files: [brought]").replace("120", "600")
    text = text.replace("    label:", "    image: {kind: float, shape: [10]}\n    label:")
    options = "{model_module: brought/net.py, pretrained_weights: brought/identity.keras, num_classes: 10, epochs: 1"
    options += ", per_process_batch_size: 5, learning_rate: 1.0e-9}"
    text = text.replace(
        'environment_variables: {PYTHONPATH: ".", STAND_IN_VAL_ACCURACY: "0.99"}', f"options: {options}"
    )
    (folder / "pretrained.yaml").write_text(text, encoding="utf-8")


def write_trained_pipeline(folder: Path) -> None:
    """Write a pipeline for Spark tables with a real training."""
    text = (folder / "spark.yaml").read_text(encoding="utf-8").replace("spark", "tables")
    text = text.replace("scripts/stand_in.py", "training_job.train").replace("at_least: 0.95", "at_least: 0.5")
    text = text.replace("    label:", "    image: {kind: bytes, encoding: png, shape: [8, 8, 1]}\n    label:")
    options = "{model_name: small_cnn, epochs: 4, per_process_batch_size: 32, learning_rate: 0.002, num_classes: 10}"
    text = text.replace(
        'environment_variables: {PYTHONPATH: ".", STAND_IN_VAL_ACCURACY: "0.99"}', f"options: {options}"
    )
    (folder / "tables.yaml").write_text(text.replace("timeout_s: 120", "timeout_s: 600"), encoding="utf-8")


def gate(folder: Path, name: str) -> Path:
    """Return the file that the jobs of a pipeline wait for."""
    return folder / f"{name}.go"


def write_busy_pipelines(folder: Path) -> None:
    """Write one pipeline for each value of `when_busy`."""
    text = (folder / "steady.yaml").read_text(encoding="utf-8")
    for name in ("queue", "latest"):
        waits = f'STAND_IN_WAITS_FOR: "{gate(folder, name)}", STAND_IN_VAL_ACCURACY'
        own = text.replace("steady", name).replace("STAND_IN_VAL_ACCURACY", waits).replace("120", "600")
        (folder / f"{name}.yaml").write_text(f"{own}when_busy: {name}\n", encoding="utf-8")


def write_smoke_pipeline(folder: Path) -> None:
    """Write the pipeline of `landfall smoke` and its cluster as they are shipped."""
    (folder / "smoke.yaml").write_text((SHIPPED / "smoke.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    shipped = (SHIPPED / "clusters.yaml").read_text(encoding="utf-8")
    with (folder / "clusters.yaml").open("a", encoding="utf-8") as clusters:
        clusters.write("\nlandfall-smoke:" + shipped.partition("\nlandfall-smoke:")[2])
