"""Text is printed without secrets and terminal escapes."""

from __future__ import annotations

import io
import logging

import pytest

from shared.safe_text import log_text, make_logging_safe, mask_secrets, one_line, setting_value, several_lines
from tests.support.terminal import landfall

ADDRESS = "acct.blob.core.windows.net/c/x?sv=1&sig=SECRET%2Fe%3D&se=2"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"https://{ADDRESS}", "https://acct.blob.core.windows.net/c/x?sv=1&sig=…&se=2"),
        ("x%3Fsig%3DSECRET' is", "x%3Fsig%3D…' is"),
        ("http://me:SECRET@host/c/x", "http://me:…@host/c/x"),
        ("AccountName=a;AccountKey=SECRET==;EndpointSuffix=b", "AccountName=a;AccountKey=…;EndpointSuffix=b"),
        ("http://127.0.0.1:10000/c/design=1@2", "http://127.0.0.1:10000/c/design=1@2"),
    ],
)
def test_secrets_become_three_dots(text: str, shown: str) -> None:
    """Signatures, keys and passwords; everything else stays."""
    assert shown == mask_secrets(text)


@pytest.mark.parametrize(
    "arguments",
    [
        ["validate", f"https:/{ADDRESS}"],
        ["validate", ADDRESS],
        ["validate", f"http://127.0.0.1:1/c/x#{ADDRESS}"],
        ["validate", "http://127.0.0.1:99999/c/x?sig=SECRET"],
        ["validate", "http://me:SECRET@127.0.0.1:1/c/x"],
        ["pack", "images", f"https://{ADDRESS}", "--to", "nowhere"],
        ["upload", f"https://{ADDRESS}", "--to", "a/b"],
    ],
)
def test_a_signature_is_never_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    """The URL may be mistyped or misplaced in any way."""
    monkeypatch.setattr("cli.validate.inputs.RETRY_BACKOFF_S", 0)
    status, out, err = landfall(capsys, *arguments)
    assert (True, False) == (status in {1, 2}, "SECRET" in out + err)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("10 %\r20 %\r\n", "10 %\n20 %\n"),
        ("\x1b]0;title\x07\x1b[2J", r"\x1b]0;title\x07\x1b[2J"),
        ("\u202egpj.exe\x9b2J", r"\u202egpj.exe\x9b2J"),
        ("one\u2028two\x0bthree\x85", r"one\u2028two\x0bthree\x85"),
        ("größer\tals ≤", "größer\tals ≤"),
    ],
)
def test_a_text_of_several_lines_has_no_other_line_ends_and_escapes(text: str, expected: str) -> None:
    """Colours are removed, what would move the cursor is spelt out."""
    assert expected == several_lines(text)


def test_one_line_spells_out_every_character_that_cannot_be_printed() -> None:
    """Letters of every language stay; a backslash is not doubled."""
    assert r"é\n\t\x1b[31m\u2028\u202e\ud800\a" == one_line("é\n\t\x1b[31m\u2028\u202e\ud800\\a")


def test_further_lines_of_a_log_record_are_indented_once() -> None:
    """A line in the first column is a record of its own."""
    assert "a\n    b\n      c" == log_text("a\nb\n  c") == log_text(log_text("a\nb\n  c"))


def test_records_and_stack_traces_of_a_logger_are_safe() -> None:
    """The factory of log records changes the message, its arguments and the trace."""
    output = io.StringIO()
    handler = logging.StreamHandler(output)
    logger = logging.getLogger("landfall.test_safe_text")
    logger.addHandler(handler)
    factory = logging.getLogRecordFactory()
    try:
        make_logging_safe()
        make_logging_safe()
        logger.warning("blob %s at https://a.example/x?sig=SECRET", "x\nforged\x1b[2J")
        try:
            raise ValueError("bad\nforged \x1b[2J AccountKey=SECRET")  # noqa: TRY301 (what a client raises)
        except ValueError:
            logger.exception("100 % failed")
    finally:
        logging.setLogRecordFactory(factory)
        logger.removeHandler(handler)
    lines = output.getvalue().splitlines()
    assert ["blob x", r"    forged\x1b[2J at https://a.example/x?sig=…", "100 % failed"] == lines[:3]
    assert (True, False, False) == (
        all(line.startswith("    ") for line in lines[3:]),
        "SECRET" in output.getvalue(),
        "\x1b" in output.getvalue(),
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("gpu", "'gpu'"),
        ("x" * 88, "a text of 88 characters"),
        ("https://h.example/T0/B1/SECRET", "'https://h.example/…'"),
        ("/subscriptions/" + "x" * 40, repr("/subscriptions/" + "x" * 40)),
    ],
)
def test_a_long_value_of_a_setting_is_not_repeated(value: str, expected: str) -> None:
    """A key in the wrong setting stays a secret; ids of resources are none."""
    assert expected == setting_value(value)
