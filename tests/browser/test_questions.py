"""The questions of docs/questions.md: at most two clicks or one command, and the answer is there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.test_pages import progress_lines
from tests.support.browser import ADDRESS, served
from tests.support.processes import REPOSITORY
from tests.support.terminal import landfall
from tests.support.world import World, pipeline
from tests.unit.cli.fake_function_app import serving
from tests.unit.function_app.registry.test_challenge import results, train
from tests.unit.function_app.web.client import look, send_form
from tests.unit.function_app.web.test_routes import world_with_letter

pytestmark = pytest.mark.browser

Answering = tuple[World, dict[str, str]]
"""A world, and its runs by the names in the list. It is made before a browser runs an event loop in this thread."""
ROW = re.compile(r"^\| (\d+) \| (.+?) \|(.*?)\| (.+?) \|(.*?)\|$", re.MULTILINE)
MAX_CLICKS = 2
NUM_QUESTIONS = 20
ANSWERS: Mapping[int, tuple[str, str]] = {
    1: ("a corrected upload of train-00001-of-00008", "a corrected upload of train-00001-of-00008"),
    2: ("Correct the file", "rejected train-00001-of-00008.tfrecord"),
    3: ("What the last 7 days cost", "Together: "),
    4: ("Data owner:", "data owner: digits/v3"),
    5: ("12 of 20 epochs", "epoch 12 of 20"),
    6: ("waits for run", "waits for run"),
    7: ("Azure ML reports a failed job without a reason", "failure: "),
    8: ("unknown is not tried again", "run_failed"),
    9: ("Landed today (UTC): 6 complete versions", "Landed today: 6 complete versions"),
    10: ("Labels: label", "labels, "),
    11: ("digits/v1", "trained on digits/v1"),
    12: ("cats.yaml: train: is required", "cats.yaml: train: is required"),
    13: ("Replay", "waiting   "),
    14: ("1.17 (0.33 node-hours)", "Together: "),
    15: ("Side by side", "digits/v2"),
    16: ("points better, 95 % between", "points better, 95 % between"),
    17: ("node-hours", ""),
    18: ("registered to topic: sent", "notification (registered) to topic"),
    19: ("asked on a page to train on it again", "asked on a page to train on it again"),
    20: ("TensorBoard files", "files:"),
}
"""What the page and what the command say."""
WITHOUT_ZONE = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?(?![\d:])(?! UTC)")
"""A time of day that does not say where."""


@pytest.fixture(scope="module", autouse=True)
def answering() -> Answering:
    """A world in which every question has an answer, and its runs by the names in the list."""
    world, _ = world_with_letter()
    world.change_machines(vm_size="Standard_NC24ads_A100_v4", price_per_node_hour=3.5)
    world.add_pipelines("letters")
    trained = world.upload_version()
    world.jobs.become(trained.run_id, "Running")
    world.follow(trained)
    world.clock.move(hours=1)
    world.finish(trained)
    better = second_model(world)
    training = world.train(version="v2")
    world.jobs.become(training.run_id, "Running")
    world.follow(training)
    world.jobs.logs[training.run_id] = progress_lines(12)
    world.train(version="v4")
    failed = world.finish(world.train(version="2026-11", dataset="letters"), "Failed")
    world.deliver(world.put("train-00001-of-00008.tfrecord", b"junk", version="v3"))
    form = {"sec-fetch-site": "same-origin"}
    assert 303 == send_form(world, "/datasets/digits/v1/submit", key="a" * 32, headers=form).status_code
    world.break_pipeline("cats")
    world.clock.move(minutes=10)
    return world, {"TRAINED": trained.run_id, "TRAINING": training.run_id, "FAILED": failed.run_id, "BETTER": better}


def second_model(world: World) -> str:
    """Train a model of another dataset twice, and leave the results of each example; return the second run."""
    register = pipeline().register_
    assert register is not None
    world.add_pipelines("signs", register_=register.model_copy(update={"model": "signs-cnn"}))
    for version, right, accuracy in (("v1", 384, 0.96), ("v2", 396, 0.99)):
        run = world.train(version=version, dataset="signs")
        train(world, run, results(right), accuracy)
    return run.run_id


def questions() -> Iterator[tuple[int, list[str], str]]:
    """Yield number, clicks and command of each question."""
    page = (REPOSITORY / "docs" / "questions.md").read_text(encoding="utf-8")
    for number, _, clicks, _, command in ROW.findall(page):
        yield int(number), re.findall(r"`(.+?)`", clicks), command.strip().strip("`")


def test_the_list_has_twenty_questions_of_two_clicks_or_one_command() -> None:
    """Each question also has an answer here."""
    found = list(questions())
    assert list(range(1, NUM_QUESTIONS + 1)) == [number for number, _, _ in found] == list(ANSWERS)
    assert [] == [number for number, clicks, _ in found if len(clicks) > MAX_CLICKS]


def test_each_question_is_answered_by_its_page(answering: Answering, browser: Browser) -> None:
    """The page is reached from the overview by the links that the list names."""
    world, names = answering
    with served(browser, lambda path: look(world, path)) as watched:
        for number, clicks, _ in questions():
            watched.page.goto(ADDRESS)
            for click in clicks:
                link = watched.page.get_by_role("link", name=names.get(click, click)).first
                watched.page.goto(ADDRESS + str(link.get_attribute("href")).removeprefix(ADDRESS))
            answer = watched.page.get_by_text(ANSWERS[number][0]).first
            expect(answer, f"question {number}").to_be_attached()
            assert [] == WITHOUT_ZONE.findall(watched.page.inner_text("body")), f"question {number}"
            watched.check()


def test_each_question_is_answered_by_its_command(answering: Answering, capsys: pytest.CaptureFixture[str]) -> None:
    """One command, without anything but its names filled in."""
    world, names = answering
    with serving(world) as url:
        for number, _, command in questions():
            if not command:
                continue
            words = [names.get(word, word) for word in shlex.split(command)[1:]]
            status, out, err = landfall(capsys, *words, "--url", url)
            assert (0, True) == (status, ANSWERS[number][1] in out), f"question {number}: {command}\n{out}{err}"
            assert ([], False) == (WITHOUT_ZONE.findall(out), "\x1b" in out), f"no zone, or a colour: {out}"
