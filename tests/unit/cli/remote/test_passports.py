"""``landfall verify``, against the API of a world with a registered model, and of a file alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from function_app.domain.passports import to_text
from function_app.registry.passport import model_file_path
from tests.support.terminal import landfall
from tests.unit.cli.fake_function_app import served, serving
from tests.unit.function_app.registry.test_passport import passport_of, registered

Capture = pytest.CaptureFixture[str]


def test_an_untouched_model_agrees(capsys: Capture) -> None:
    """A line for each statement; the current version is meant where none is named."""
    world, run = registered()
    with serving(world) as url:
        code, out, _ = landfall(capsys, "verify", "digits-cnn", "--url", url)
        whole = landfall(capsys, "verify", f"digits-cnn/{run.model_version}", "--url", url, "--json")
    lines = out.splitlines()
    assert (0, f"digits-cnn version {run.model_version}, passport {passport_of(world, run)['digest']}") == (
        code,
        lines[0],
    )
    assert "  ok              fingerprint: from name, size and CRC32C of 3 shards" in lines
    assert "16 recomputed, nothing differs." == lines[-1]
    found = json.loads(whole[1])
    assert (0, True, 16) == (whole[0], found["agrees"], len(found["checks"]))


def test_what_differs_is_shown_and_the_exit_status_says_so(capsys: Capture) -> None:
    """What was expected, and what was found."""
    world, run = registered()
    world.run_outputs.write(model_file_path(run, "saved_model/weights"), b"weightz")
    with serving(world) as url:
        code, out, _ = landfall(capsys, "verify", f"digits-cnn:{run.model_version}", "--url", url)
    assert (1, "16 recomputed, 1 of them differs.") == (code, out.splitlines()[-1])
    at = out.splitlines().index("  differs         model files: SHA-256 of 1 files, and that there are no others")
    expected, found = out.splitlines()[at + 1 : at + 3]
    assert ("the passport says: ", True) == (expected.strip()[:19], "saved_model/weights" in expected)
    assert ("found:", True) == (found.strip()[:6], "saved_model/weights" in found)


def test_an_app_that_answers_with_another_models_passport_is_caught(capsys: Capture) -> None:
    """The command computes the digest itself, and looks at the name."""
    world, run = registered()
    with served({**passport_of(world, run), "checks": []}) as url:
        code, out, _ = landfall(capsys, "verify", "faces:7", "--url", url)
    assert (1, True) == (code, "differs         model: " in out)


def test_a_file_is_verified_without_a_function_app(tmp_path: Path, capsys: Capture) -> None:
    """What follows from it alone; a byte that changed is found, and what is no passport is named."""
    world, run = registered()
    file = tmp_path / "passport.json"
    text = to_text(passport_of(world, run))
    file.write_text(text)
    code, out, _ = landfall(capsys, "verify", "--file", file)
    assert (0, "6 recomputed, nothing differs; 1 cannot be recomputed here.") == (code, out.splitlines()[-1])
    file.write_text(text.replace('"num_records": 11', '"num_records": 12', 1))
    code, out, _ = landfall(capsys, "verify", "--file", file)
    assert (1, True, True) == (
        code,
        "differs         digest over itself" in out,
        "differs         shard counts" in out,
    )
    file.write_text(text.replace('"name": "digits-cnn"', '"name": "\\u001b[31mdigits-cnn"'))
    assert "\x1b" not in landfall(capsys, "verify", "--file", file)[1]
    file.write_text("{}")
    code, _, error = landfall(capsys, "verify", "--file", file)
    assert (1, True) == (code, "cannot be read as a passport: it is " in error)


@pytest.mark.parametrize("arguments", [(), ("a:b:c",), ("../x",), ("digits-cnn:7", "--file", __file__)])
def test_what_names_no_model_is_refused_before_anything_is_asked(capsys: Capture, arguments: tuple[str, ...]) -> None:
    """The error names the expected form."""
    code, _, error = landfall(capsys, "verify", *arguments)
    assert (2, True) == (code, "digits-cnn" in error)


def test_a_version_without_a_passport_says_why(capsys: Capture) -> None:
    """The app's own words."""
    world, run = registered()
    world.models.tag("digits-cnn", str(run.model_version), "landfall.passport", None)
    with serving(world) as url:
        code, _, error = landfall(capsys, "verify", "digits-cnn", "--url", url)
    assert (1, True) == (code, "has no passport: it was registered by an earlier release" in error)
