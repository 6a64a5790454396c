"""Two pipelines with scripts as a user writes them: one is sound, the other does not average its gradients."""

from __future__ import annotations

from pathlib import Path

SOUND = (Path(__file__).parent / "own_scripts" / "small.py").read_text(encoding="utf-8")
AVERAGING = "        tape = hvd.DistributedGradientTape(tape)\n"
CARELESS = SOUND.replace(AVERAGING, "")


def write_own_pipelines(folder: Path) -> None:
    """Write both pipelines and their scripts into a folder that has the pipeline `steady`."""
    for name, script in (("sound", SOUND), ("careless", CARELESS)):
        text = (folder / "steady.yaml").read_text(encoding="utf-8").replace("steady", name)
        text = text.replace("stand_in.py", f"{name}.py").replace("at_least: 0.95", "at_least: 0.7")
        text = text.replace('{PYTHONPATH: ".", STAND_IN_VAL_ACCURACY: "0.99"}', "{}")
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
        (folder / "scripts" / f"{name}.py").write_text(script, encoding="utf-8")
