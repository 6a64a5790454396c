"""Secrets in the tree, and vulnerabilities of what is installed: found, allowed with a reason, or not asked for."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from tools import security
from tools.check_tree import File, tracked_files

PHRASE = 'pass{}word = "correct-horse-7-battery"'.format("")
PLANTED = {
    "an account key": "AccountKey=" + 86 * "x" + "==",
    "a private key": "-----BEGIN RSA PRIVATE" + " KEY-----",
    "a token of GitHub": "token: ghp_" + 36 * "x",
    "a phrase": PHRASE,
    "an address with a phrase": "amqps://me:" + "s3cr3t-and-long@broker.example.com",
    "a silenced line": f"{PHRASE}  # pragma: allow" + "list secret",
}
"""In parts: otherwise the scan of this file would find them."""


@pytest.mark.parametrize("text", PLANTED.values(), ids=PLANTED)
def test_a_secret_is_found(text: str, tmp_path: Path) -> None:
    """Its line is named, and a comment in the line does not silence it."""
    found = planted(tmp_path, f"plain\n{text}\n")
    assert [2] == sorted({line for line, _ in found})


def planted(folder: Path, text: str) -> list[tuple[int, str]]:
    """What is found in a file with that text, line and kind."""
    file = folder / "settings.py"
    file.write_text(text, encoding="utf-8")
    breaches = list(security.secrets([File(str(file), text)], clean=folder / "clean.txt", processors=1))
    return [(breach.line, breach.problem) for breach in breaches]


def test_a_file_is_looked_at_again_once_it_has_changed(tmp_path: Path) -> None:
    """Clean files are remembered by their content, and only they."""
    secret = PHRASE
    found = [len(planted(tmp_path, text)) for text in ("plain\n", secret, secret, "plain\n", secret)]
    assert [0, 1, 1, 0, 1] == found


def test_what_is_allowed_is_still_there_and_has_a_reason() -> None:
    """An exception that nothing needs any more would hide the next secret in its file."""
    found = security.scan(sorted({path for path, _ in security.ALLOWED}), processors=1)
    needed = {(path, kind) for path, places in found.items() for _, kind in places}
    assert (needed, True) == (set(security.ALLOWED), all(security.ALLOWED.values()))


class Advisories(BaseHTTPRequestHandler):
    """A database of vulnerabilities that knows one package, in the form of OSV."""

    known: ClassVar[Mapping[str, object]] = {
        "id": "GHSA-0000",
        "affected": [
            {
                "package": {"name": "pyyaml", "ecosystem": "PyPI"},
                "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "5.4"}]}],
                "versions": ["5.3"],
            }
        ],
    }

    def do_POST(self) -> None:
        """Answer with the vulnerability if it is the package's."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = {"vulns": [self.known]} if asked["package"]["name"] == "pyyaml" else {}
        body = json.dumps(answer).encode()
        self.send_response(503 if self.path == "/broken" else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    """The address of that database."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Advisories)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def audit(folder: Path, pins: str, database: str) -> tuple[list[str], str]:
    """What an audit of those pins finds and says."""
    (folder / "constraints.txt").write_text(pins, encoding="utf-8")
    return security.finish_audit(security.start_audit([folder / "constraints.txt"], database))


def test_a_known_vulnerability_is_found_with_the_version_that_corrects_it(tmp_path: Path, database: str) -> None:
    """Package, version, advisory and the way out."""
    expected = (["pyyaml 5.3: GHSA-0000, fixed in 5.4"], "2 packages audited")
    assert expected == audit(tmp_path, "PyYAML==5.3\nclick==8.5.1\n", f"{database}/")


@pytest.mark.parametrize("where", ["http://127.0.0.1:1/", "{database}/broken"], ids=["no network", "503"])
def test_without_a_database_the_audit_says_that_it_was_skipped(where: str, tmp_path: Path, database: str) -> None:
    """A machine without a network passes, and is not said to be free of vulnerabilities."""
    breaches, word = audit(tmp_path, "PyYAML==5.3\n", where.format(database=database))
    assert ([], True) == (
        breaches,
        word.startswith("skipped: pip-audit (no database of vulnerabilities answers here"),
    )


def test_an_audit_that_fails_otherwise_is_not_skipped(tmp_path: Path, database: str) -> None:
    """A pin that cannot be read would never be audited again."""
    breaches, word = audit(tmp_path, "PyYAML=5.3\n", f"{database}/")
    assert (1, "pip-audit failed") == (len(breaches), word)


def test_every_lock_is_audited() -> None:
    """A lock is any file with the versions of installed packages."""
    tracked = {file.path for file in tracked_files()[0]}
    locks = {path for path in tracked if Path(path).name.startswith("constraints")}
    assert (set(), set()) == (locks - set(security.LOCKS), set(security.LOCKS) - tracked)
