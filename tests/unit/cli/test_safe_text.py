"""Text is printed without secrets and terminal escapes."""

from __future__ import annotations

import pytest

from cli.safe_text import mask_secrets
from tests.support.terminal import landfall
from tests.unit.cli.fake_function_app import served

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
    """However a URL is mistyped or misplaced."""
    monkeypatch.setattr("cli.validate.inputs.RETRY_BACKOFF_S", 0)
    status, out, err = landfall(capsys, *arguments)
    assert (True, False) == (status in {1, 2}, "SECRET" in out + err)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("10 %\r20 %\r\n", "10 %\n20 %\n"),
        ("\x1b]0;title\x07\x1b[2J", r"\x1b]0;title\x07\x1b[2J"),
        ("\u202egpj.exe\x9b2J", r"\u202egpj.exe\x9b2J"),
        ("größer\tals ≤", "größer\tals ≤"),
    ],
)
def test_escapes_in_an_answer_do_not_reach_the_terminal(
    capsys: pytest.CaptureFixture[str], text: str, shown: str
) -> None:
    """Colours are removed, what would move the cursor is spelt out."""
    letter = {"died_at": "2026", "state": text, "dead_letter_id": "0", "source": "", "subject": "", "error": ""}
    with served({"dead_letters": [letter]}) as url:
        _, out, _ = landfall(capsys, "dead-letters", "list", "--url", url, "--key", "k")
    assert f"2026  {shown} " in out
