"""Most of docs/questions.md on a real twin, each of whose jobs meets a fault, as with `landfall up --fault`."""

from __future__ import annotations

import html
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest

from local_azure.processes import PATIENCE_S
from tests.browser.test_questions import ANSWERS, questions
from tests.support.terminal import landfall
from tests.support.twin import PIPELINES, TwinUnderTest, options, twin_under_test
from tests.twin.shards import shard, whole_version
from tests.twin.test_outcomes import await_state

pytestmark = [pytest.mark.twin, pytest.mark.slow]

FAULT = "truncated"
"""The response to each submission is cut off, so that the app does not know whether the job exists."""
BAD = "train-00001-of-00002"
WALKED = (1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 14, 15, 17, 18, 20)
"""The other questions need outputs that a stand-in for a training does not write, a dead letter, or a form."""
HERE = {
    1: (f"a corrected upload of {BAD}", f"a corrected upload of {BAD}"),
    2: ("Correct the file", f"rejected {BAD}.tfrecord"),
    4: ("Data owner:", "data owner: steady/v3"),
    9: ("Landed today (UTC): ", "Landed today: "),
    7: ("Class of failure", "failure: "),
    8: ("What was done about it", "run_failed"),
    11: ("steady/v1", "trained on steady/v1"),
    14: ("Cost so far", "Together: "),
    15: ("Side by side", "steady/v2"),
    20: ("Model: steady/v1/", "files:"),
}
"""Answers with the names of this twin."""


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwinUnderTest]:
    """A separate twin, with a pipeline that is out of service."""
    folder = tmp_path_factory.mktemp("faulty")
    pipelines = folder / "pipelines"
    shutil.copytree(PIPELINES, pipelines)
    text = re.sub(
        r"^train:\n(  .*\n)*", "", (pipelines / "weak.yaml").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    (pipelines / "weak.yaml").unlink()
    (pipelines / "cats.yaml").write_text(text.replace("weak", "cats"), encoding="utf-8")
    with twin_under_test(replace(options(folder, pipelines=pipelines), fault=FAULT)) as running:
        yield running


@pytest.fixture(scope="module")
def names(faulty: TwinUnderTest) -> dict[str, str]:
    """Create the situations that the questions ask about; return the values of the placeholders in the list."""
    found = {"digits/v1": "steady/v1", "digits/v3": "steady/v3"}
    for version, state, name in (
        ("steady/v1", "registered", "TRAINED"),
        ("steady/v2", "registered", "SECOND"),
        ("broken/v1", "failed", "FAILED"),
        ("endless/v1", "running", "TRAINING"),
    ):
        faulty.upload(version, whole_version())
        found[name] = await_state(faulty, version, state)["run_id"]
        if name != "TRAINING":
            faulty.await_settled(version)
    faulty.upload("endless/v2", whole_version())
    faulty.upload("steady/v3", {"train-00000-of-00002.tfrecord": shard(), f"{BAD}.tfrecord": b"junk"})
    faulty.await_quiet()
    return found


def known(number: int, names: dict[str, str]) -> dict[str, str]:
    """Return the placeholder values for a question; two runs that are compared belong to one pipeline."""
    return {**names, "TRAINING": names["SECOND"]} if number == 15 else names


def test_each_job_met_the_fault_and_ran_once(faulty: TwinUnderTest, names: dict[str, str]) -> None:
    """Otherwise the questions below would be asked of a twin without faults."""
    met = faulty.client.faults_met()
    for name in ("TRAINED", "SECOND", "FAILED", "TRAINING"):
        assert (FAULT, names[name]) in met, name
        assert 1 == faulty.api.run(names[name])["attempt"]


def followed(http: httpx.Client, page: str, click: str) -> str:
    """Return the page behind the first link with this text."""
    links = re.findall(r'<a [^>]*href="([^"]+)"[^>]*>(.*?)</a>', page, re.DOTALL)
    [address, *_] = [address for address, text in links if click in html.unescape(re.sub(r"<[^>]+>", "", text))]
    return http.get(html.unescape(address)).raise_for_status().text


def test_pages_answer_within_two_clicks(faulty: TwinUnderTest, names: dict[str, str]) -> None:
    """The twin's functions host serves the pages; a browser walks the same list over a world in memory."""
    unanswered = []
    with httpx.Client(base_url=faulty.twin.places.functions_url, timeout=PATIENCE_S, trust_env=False) as http:
        for number, clicks, _ in questions():
            if number in WALKED:
                page = http.get("/").raise_for_status().text
                for click in clicks:
                    page = followed(http, page, known(number, names).get(click, click.replace("00008", "00002")))
                text = html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page)))
                if HERE.get(number, ANSWERS[number])[0] not in text:
                    unanswered.append((number, text[:2000]))
    assert [] == unanswered


def test_commands_answer(faulty: TwinUnderTest, names: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Each question needs one command, from any folder, with only the address and the key."""
    places, unanswered = faulty.twin.places, []
    for number, _, command in questions():
        if number in WALKED and command:
            words = [known(number, names).get(word, word) for word in shlex.split(command)[1:]]
            status, out, err = landfall(
                capsys, *words, "--url", places.functions_url, "--key", places.secrets.function_key
            )
            if status or HERE.get(number, ANSWERS[number])[1] not in out:
                unanswered.append((number, status, out, err))
    assert [] == unanswered
