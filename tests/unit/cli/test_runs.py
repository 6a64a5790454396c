"""Commands against a function app that answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from cli.main import main
from tests.support.cli import landfall


@contextmanager
def function_app(answer: dict[str, Any], seen: list[tuple[str, Any]], status: int = 202) -> Iterator[str]:
    """An address that answers every request alike, and notes what came."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            seen.append((self.path, json.loads(body) if body else None))
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST  # noqa: N815 - the library calls it so

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command line prints; it must end well."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert 0 == ended.value.code
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("state", "words"), [("canceled", "landfall-x-a1 is canceled."), ("running", "landfall-x-a1 is being canceled.")]
)
def test_cancel_says_whether_the_run_has_ended(capsys: pytest.CaptureFixture[str], state: str, words: str) -> None:
    """A job takes its time to end; the next command follows it."""
    seen: list[tuple[str, Any]] = []
    with function_app({"run_id": "landfall-x-a1", "state": state}, seen) as url:
        out = said(capsys, "cancel", "landfall-x-a1", "--url", url, "--key", "k")
    assert ([("/api/runs/landfall-x-a1/cancel", None)], True) == (seen, out.startswith(words))


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (("cancel", "landfall-x-a1"), {"run_id": "landfall-x-a1", "state": "running"}),
        (("run", "landfall-x-a1"), {"run_id": "landfall-x-a1", "log_tail": "\x1b[31mred\r\n\x1b[2J"}),
        (("runs",), {"runs": [{"run_id": "landfall-x-a1"}]}),
        (("runs",), {"runs": []}),
    ],
)
def test_json_is_what_the_function_app_answered(
    capsys: pytest.CaptureFixture[str], command: tuple[str, ...], answer: dict[str, Any]
) -> None:
    """Whole, and nothing beside it: a program reads it."""
    with function_app(answer, []) as url:
        assert answer == json.loads(said(capsys, *command, "--json", "--url", url, "--key", "k"))


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
def test_a_terminal_obeys_nobody_elses_text(capsys: pytest.CaptureFixture[str], text: str, shown: str) -> None:
    """A log's colours are left out, what would move the cursor is spelt out."""
    letter = {"died_at": "2026", "state": text, "dead_letter_id": "0", "source": "", "subject": "", "error": ""}
    with function_app({"dead_letters": [letter]}, []) as url:
        assert f"2026  {shown} " in said(capsys, "dead-letters", "list", "--url", url, "--key", "k")


def test_a_terminal_obeys_no_refusal(capsys: pytest.CaptureFixture[str]) -> None:
    """Nor any other error, whatever it quotes."""
    with function_app({"error": {"message": "no \x1b]0;title\x07"}}, [], status=400) as url:
        _, _, err = landfall(capsys, "runs", "--url", url)
    assert "Error: no \\x1b]0;title\\x07\n" == err


def test_an_answer_that_is_another(capsys: pytest.CaptureFixture[str]) -> None:
    """Of another function app, or of an older one: what is missing is named."""
    with function_app({"run_id": "landfall-x-a1"}, []) as url:
        status, _, err = landfall(capsys, "run", "landfall-x-a1", "--url", url)
    assert (1, True) == (status, f"{url} should have answered with 'state', and did not" in err)


@pytest.mark.parametrize(("subject", "look"), [("digits/v1", "why digits/v1"), ("", "dead-letters show 0a")])
def test_a_replay_says_where_to_look(capsys: pytest.CaptureFixture[str], subject: str, look: str) -> None:
    """What was not understood is about nothing that has a story."""
    with function_app({"subject": subject, "source": "shard-uploaded"}, []) as url:
        out = said(capsys, "dead-letters", "replay", "0a", "--url", url, "--key", "k")
    assert f"0a: sent to shard-uploaded again. What becomes of it: landfall {look}\n" == out


def test_submit_with_force_says_so_to_the_function_app(capsys: pytest.CaptureFixture[str]) -> None:
    """The flag goes into the body."""
    seen: list[tuple[str, Any]] = []
    with function_app({"run_id": "landfall-x-a1", "state": "planned"}, seen) as url:
        said(capsys, "submit", "digits/v1", "--force", "--url", url, "--key", "k")
    assert ("/api/runs", True) == (seen[0][0], seen[0][1]["force"])


@pytest.mark.parametrize(
    ("target", "members"),
    [("speed", {"dataset": "speed"}), ("digits/v1", {"dataset": "digits", "version": "v1"})],
)
def test_submit_names_a_version_where_the_user_does(
    capsys: pytest.CaptureFixture[str], target: str, members: dict[str, str]
) -> None:
    """Synthetic data have none, and the body then says nothing of one."""
    seen: list[tuple[str, Any]] = []
    with function_app({"run_id": "landfall-x-a1", "state": "planned"}, seen) as url:
        said(capsys, "submit", target, "--url", url, "--key", "k")
    assert [("/api/runs", {**members, "overrides": {}})] == seen
