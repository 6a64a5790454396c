"""Malformed ids, keys and URLs are rejected before a request is sent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli.options import TwinAddress, api_client, elsewhere, note_elsewhere
from tests.support.terminal import landfall

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("name", ["", "..", "digits/v1", "a b"])
@pytest.mark.parametrize("command", [("run",), ("cancel",), ("dead-letters", "show"), ("dead-letters", "replay")])
def test_a_malformed_id_is_refused(capsys: Capture, command: tuple[str, ...], name: str) -> None:
    """It would lead to another path of the API; the message shows what an id looks like."""
    what = "dead letter, such as 0123456789abcdef" if len(command) > 1 else "run, such as landfall-digits-"
    status, _, err = landfall(capsys, *command, "--url", "http://127.0.0.1:9", "--", name)
    assert (2, True) == (status, f"{name!r} is not the id of a {what}" in err)


def test_what_cannot_be_the_id_of_a_dead_letter_is_refused(capsys: Capture) -> None:
    """The id of a run is not that of a dead letter; the API would answer with its pattern."""
    status, _, err = landfall(capsys, "dead-letters", "show", "--url", "http://127.0.0.1:9", "landfall-x-a1")
    assert (2, True) == (status, "'landfall-x-a1' is not the id of a dead letter, such as 0123456789abcdef." in err)


@pytest.mark.parametrize("subject", ["", "/", "..", "../runs", "digits/."])
def test_a_malformed_subject_is_refused(capsys: Capture, subject: str) -> None:
    """It would lead to another path of the API."""
    status, _, err = landfall(capsys, "why", "--url", "http://127.0.0.1:9", subject)
    assert (2, True) == (status, "is not a dataset version, a run or a blob" in err)


@pytest.mark.parametrize("name", ["", ".", ".."])
@pytest.mark.parametrize(
    ("command", "what"), [(("datasets",), "dataset"), (("models",), "model"), (("notify", "test"), "dataset")]
)
def test_a_name_that_would_lead_to_another_path_is_refused(
    capsys: Capture, command: tuple[str, ...], what: str, name: str
) -> None:
    """`landfall models .` would list all models, or end in an error about the answer."""
    status, _, err = landfall(capsys, *command, "--url", "http://127.0.0.1:9", name)
    assert (2, True) == (status, f"{name!r} is not the name of a {what}." in err), err


@pytest.mark.parametrize("command", [("why",), ("datasets",), ("models",), ("notify", "test")])
def test_bytes_that_are_no_text_are_refused(capsys: Capture, command: tuple[str, ...]) -> None:
    """A file's name may hold them, and a person may paste it."""
    status, _, err = landfall(capsys, *command, "--url", "http://127.0.0.1:9", "digits/v1/\udcff.tfrecord")
    assert (1, True) == (status, "'\\udcff' is not a character that can be sent" in err), err


def test_a_malformed_dataset_version_is_refused_with_an_example(capsys: Capture) -> None:
    """The error shows the form and what was typed."""
    status, _, err = landfall(capsys, "status", "digits")
    assert (2, True) == (status, "'digits' is not <dataset>/<version>, such as digits/2026-11-20" in err)


@pytest.mark.parametrize("key", ["secret\r", "\nsecret", "secretü"])
def test_a_malformed_key_is_refused_and_not_shown(capsys: Capture, key: str) -> None:
    """Most of it is a key."""
    status, _, err = landfall(capsys, "runs", "--url", "http://127.0.0.1:9", "--key", key)
    assert (1, True, False) == (status, "The function app's key is malformed" in err, "secret" in err)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://[::1", ""),
        ("https://myapp/\udcff", ""),
        ("myapp.azurewebsites.net", "it must start with http:// or https://"),
    ],
)
def test_a_malformed_url_is_refused(capsys: Capture, url: str, problem: str) -> None:
    """The error shows it, with what is wrong."""
    status, _, err = landfall(capsys, "runs", "--url", url)
    assert (1, True) == (status, f"The function app's URL {url!r} is malformed: {problem}" in err)


def test_an_unreachable_function_app_is_no_stack_trace(capsys: Capture) -> None:
    """A refused connection names the URL and asks whether it is right."""
    status, _, err = landfall(capsys, "runs", "--url", "http://127.0.0.1:9")
    assert (1, True, False) == (status, "http://127.0.0.1:9 cannot be reached" in err, "Traceback" in err)


@pytest.mark.parametrize(
    ("url", "key", "sent"),
    [
        (None, None, "twins-key"),
        ("http://127.0.0.1:7071/", None, "twins-key"),
        ("http://localhost:7071", None, "twins-key"),
        ("http://localhost:7071", "own", "own"),
        (None, "own", "own"),
        ("http://127.0.0.1:7072", None, None),
        ("https://app.example", None, None),
    ],
)
def test_the_twins_key_is_sent_to_the_twin_alone(
    monkeypatch: pytest.MonkeyPatch, url: str | None, key: str | None, sent: str | None
) -> None:
    """It does not matter how the URL is set, and the user need not do anything."""
    twin = TwinAddress(
        functions_url="http://127.0.0.1:7071",
        function_key="twins-key",
        data_connection="",
        host_connection="",
        traces=Path("traces"),
    )
    monkeypatch.setattr("cli.options.running_twin_of_this_clone", lambda: twin)
    with api_client(url, key) as client:
        assert sent == client._http.headers.get("x-functions-key")


def test_a_twin_in_another_folder_is_found(tmp_path: Path) -> None:
    """Its folder must exist; the note about a deleted folder is removed."""
    base, other, gone = tmp_path / "base", tmp_path / "other", tmp_path / "gone"
    other.mkdir()
    for folder in (base, other, gone):
        note_elsewhere(folder, base)
    assert [other] == list(elsewhere(base))
    assert 1 == len(list((base / "elsewhere").iterdir()))


def test_a_note_that_another_command_forgets_meanwhile_is_no_error(tmp_path: Path) -> None:
    """Each command removes the notes about deleted folders."""
    base, folders = tmp_path / "base", [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        note_elsewhere(folder, base)
    found = elsewhere(base)
    first = next(found)
    for folder in folders:
        folder.rmdir()
    assert [] == list(elsewhere(base))
    assert (True, []) == (first in folders, list(found))


def test_a_note_is_complete_whenever_another_command_reads_it(tmp_path: Path) -> None:
    """A twin that starts again replaces its note; an empty one would mean the working directory."""
    base, other = tmp_path / "base", tmp_path / "other"
    other.mkdir()
    note_elsewhere(other, base)
    (note,) = (base / "elsewhere").iterdir()
    with note.open() as earlier:
        note_elsewhere(other, base)
        assert note.stat().st_ino != os.fstat(earlier.fileno()).st_ino
    (base / "elsewhere" / ".unfinished").touch()
    assert [other] == list(elsewhere(base))
