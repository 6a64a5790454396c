"""Small data in the layout of NIH's ChestX-ray14: a table, numbered image folders and the list of test images."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 32
HEADER = [
    "Image Index",
    "Finding Labels",
    "Follow-up #",
    "Patient ID",
    "Patient Age",
    "Patient Gender",
    "View Position",
    "OriginalImage[Width",
    "Height]",
    "OriginalImagePixelSpacing[x",
    "y]",
]
"""As NIH writes it: two of the names contain a comma."""
FINDINGS = ("No Finding", "Effusion", "Cardiomegaly", "Cardiomegaly|Effusion")
IMAGES_PER_PATIENT = (1, 2, 3)
FOLDERS = 3


def write_nih(folder: Path, *, patients: int, coloured: int = 0, confused: float = 0.0, side: int = SIDE) -> Path:
    """Write the data: every fifth patient is in the test list, and an effusion is a bright lower half with noise.

    In the share ``confused`` the image contradicts the table, so that no model can classify them all.
    """
    generator = np.random.default_rng(0)
    rows: list[list[object]] = []
    test: list[str] = []
    for patient in range(1, patients + 1):
        for number in range(IMAGES_PER_PATIENT[patient % len(IMAGES_PER_PATIENT)]):
            name, findings = f"{patient:08d}_{number:03d}.png", FINDINGS[(patient + number) % len(FINDINGS)]
            place = folder / f"images_{1 + patient % FOLDERS:03d}" / "images" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            mode = "RGBA" if len(rows) < coloured else "L"
            place.write_bytes(
                _xray(generator, side, mode, effusion=("Effusion" in findings) != (generator.random() < confused))
            )
            rows.append([name, findings, number, patient, "060Y", "F", "PA", 2682, 2749, 0.143, 0.143])
            test += [name] if patient % 5 == 0 else []
    (folder / "test_list.txt").write_text("\n".join(test) + "\n")
    with (folder / "Data_Entry_2017_v2020.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_NONE, escapechar="\\").writerows([HEADER, *rows])
    return folder


def _xray(generator: np.random.Generator, side: int, mode: str, *, effusion: bool) -> bytes:
    pixels = generator.normal(90, 25, (side, side))
    if effusion:
        pixels[side // 2 :] += 60
    buffer = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).convert(mode).save(buffer, format="PNG")
    return buffer.getvalue()
