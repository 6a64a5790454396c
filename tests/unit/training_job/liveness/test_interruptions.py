"""Signals that ask to stop, and Azure's notices of a node's end from a metadata service on loopback."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest

from local_azure.processes import wait_until
from tests.support.metadata_service import MetadataService
from training_job.liveness.interruptions import NodeNotices, StopRequest


@pytest.fixture(params=[signal.SIGTERM, signal.SIGUSR1])
def number(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    """Either signal; its previous handler is restored."""
    before = signal.getsignal(request.param)
    yield request.param
    signal.signal(request.param, before)


def test_a_signal_is_remembered_and_ends_nothing(number: signal.Signals) -> None:
    """The loop looks after the step."""
    stop = StopRequest()
    stop.listen()
    assert not stop.requested
    os.kill(os.getpid(), number)
    assert stop.requested


@pytest.fixture
def service() -> Iterator[MetadataService]:
    """A service without events."""
    with MetadataService() as one:
        yield one


@pytest.fixture
def notices(service: MetadataService) -> Iterator[NodeNotices]:
    """Asking it many times a second."""
    one = NodeNotices(service.url, interval_s=0.01)
    one.start()
    yield one
    one.stop()


def answered(service: MetadataService, times: int = 3) -> None:
    """Wait until it was asked so often again."""
    before = service.asked
    wait_until(lambda: service.asked >= before + times, what="further questions")


@pytest.mark.parametrize("kind", ["Preempt", "Terminate", "Redeploy", "Reboot"])
def test_the_end_of_a_node_wants_a_checkpoint_until_one_is_saved(
    service: MetadataService, notices: NodeNotices, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each event counts once, however often it is listed; the log says what was announced."""
    service.announce("e1", kind)
    wait_until(notices.checkpoint_wanted, what="a checkpoint is wanted")
    notices.checkpoint_saved()
    answered(service)
    assert not notices.checkpoint_wanted()
    assert f"Azure announces {kind}, not before Mon, 19 Sep 2016 18:29:47 GMT\n" == capsys.readouterr().out


def test_a_freeze_wants_none(service: MetadataService, notices: NodeNotices) -> None:
    """A pause of seconds takes nothing away."""
    service.announce("e1", "Freeze")
    answered(service)
    assert not notices.checkpoint_wanted()


def test_each_question_says_that_it_is_for_the_metadata_service(
    service: MetadataService, notices: NodeNotices
) -> None:
    """Azure answers 400 without the header."""
    del notices
    answered(service, 1)
    assert {"true"} == set(service.headers)


@pytest.mark.parametrize("answer", [b"<html>", b"{}", b"[]", json.dumps({"Events": [1]}).encode()])
def test_an_answer_that_makes_no_sense_is_reported_once_and_polled_again(
    service: MetadataService, notices: NodeNotices, answer: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next one may be better."""
    service.answer = answer
    answered(service)
    assert 1 == capsys.readouterr().out.count(f"no notices of this node's end: {service.url} does not answer (")
    service.announce("e1", "Preempt")
    wait_until(notices.checkpoint_wanted, what="a checkpoint is wanted")


def test_a_service_that_does_not_speak_http_is_polled_again(
    service: MetadataService, notices: NodeNotices, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python's errors about such an answer are no OSErrors."""
    service.bytes_instead = b"nonsense\r\n"
    answered(service)
    assert 1 == capsys.readouterr().out.count(f"no notices of this node's end: {service.url} does not answer (")
    service.bytes_instead = b""
    service.announce("e1", "Preempt")
    wait_until(notices.checkpoint_wanted, what="a checkpoint is wanted")


def test_without_an_address_no_service_is_polled(service: MetadataService) -> None:
    """A machine that is not a node of Azure."""
    notices = NodeNotices()
    notices.start()
    assert (0, False) == (service.asked, notices.checkpoint_wanted())
