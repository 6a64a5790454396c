"""The log of a rank in parts: whole lines, no secrets, nothing twice and nothing left out."""

from __future__ import annotations

import pytest

from function_app.domain.errors import LogUnreadableError, NotFoundError, ServiceUnavailableError
from function_app.explain import rank_logs
from function_app.explain.rank_logs import read_rank_log, read_rank_places
from shared.progress import RankPlace
from tests.support.world import World
from tests.unit.function_app.web.client import call, error, look

SECRET = "AccountKey=c2VjcmV0"  # noqa: S105 (of no account)


def running(**logs: str) -> tuple[World, str]:
    """A world with a run of two ranks that trains; ``rank_0`` and ``rank_1`` are their logs."""
    world = World()
    run = world.upload_version()
    world.jobs.become(run.run_id, "Running")
    run = world.follow(run)
    for name, log in logs.items():
        rank = name.removeprefix("rank_")
        world.jobs.logs[run.run_id if rank == "0" else f"{run.run_id}/{rank}"] = log
    return world, run.run_id


def end(world: World, run_id: str) -> None:
    """Let the job fail."""
    world.jobs.become(run_id, "Failed", error="exit status 1")
    run = world.ledger.run(run_id)
    assert run is not None
    world.follow(run)


def test_a_growing_log_is_read_in_whole_lines() -> None:
    """What is still being written is shown, and comes again once it is whole; the end may lack its line end."""
    world, run_id = running(rank_0="one\ntw")
    first = read_rank_log(run_id, 0, 0, world.services)
    assert ("one\n", "tw", 4, False) == (first.log_text, first.unfinished, first.next, first.has_ended)
    world.jobs.logs[run_id] = "one\ntwo\nthree"
    second = read_rank_log(run_id, 0, first.next, world.services)
    assert ("two\n", "three", 8, False) == (second.log_text, second.unfinished, second.next, second.has_ended)
    end(world, run_id)
    last = read_rank_log(run_id, 0, second.next, world.services)
    assert ("three", "", 13, True) == (last.log_text, last.unfinished, last.next, last.has_ended)


@pytest.mark.parametrize("after", range(30))
def test_no_byte_to_begin_at_shows_a_secret(after: int) -> None:
    """A reader chooses the byte: the rest of a line is left out, as it may be what a secret is recognised by."""
    world, run_id = running(rank_0=f"ab {SECRET}\nnext\n")
    part = read_rank_log(run_id, 0, after, world.services)
    assert "c2V" not in part.log_text + part.unfinished
    assert part.log_text in (f"ab {SECRET[:11]}…\nnext\n", "next\n", "")
    assert ("next" in part.log_text) == (after <= len(f"ab {SECRET}\n"))


def test_parts_make_the_whole_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds for any line ends, even if the limit is between two of them or within a character."""
    monkeypatch.setattr(rank_logs, "MAX_PART_BYTES", 16)
    text = "".join(f"{number} é✓\r\n{number}%\r{number}%\n" for number in range(40))
    world, run_id = running(rank_0=text)
    end(world, run_id)
    read, after = "", 0
    while True:
        part = read_rank_log(run_id, 0, after, world.services)
        read, after = read + part.log_text, part.next
        if part.has_ended:
            break
        assert part.log_text
    assert text == read


def test_a_line_longer_than_a_part_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its beginning is shown, and the next line follows."""
    monkeypatch.setattr(rank_logs, "MAX_PART_BYTES", 16)
    world, run_id = running(rank_0=f"{'x' * 100}\nnext\n")
    read, after = "", 0
    while (part := read_rank_log(run_id, 0, after, world.services)).next > after:
        read, after = read + part.log_text, part.next
    assert f"{'x' * 16}next\n" == read


def test_each_rank_says_where_it_runs() -> None:
    """The line is in the rank's own log."""
    place = RankPlace(rank=1, world_size=2, node=1, host="node-b", met=("node-a", "node-b"))
    world, run_id = running(rank_0="root\n", rank_1=f"{place.to_line()}\nsecond\n")
    body = call(world, "GET", f"/api/runs/{run_id}/logs?rank=1").json()
    assert (1, 2, "node-b", ["node-a", "node-b"]) == (
        body["rank"],
        body["num_ranks"],
        body["place"]["host"],
        body["place"]["met"],
    )
    assert body["log_text"].endswith("second\n")


def test_a_rank_that_is_not_there_is_refused_with_their_number() -> None:
    """Rank 2 of two."""
    world, run_id = running()
    answer = call(world, "GET", f"/api/runs/{run_id}/logs?rank=2")
    assert (404, "not_found") == error(answer)
    assert answer.json()["detail"].endswith("has no rank 2: it has 2 ranks, 0 to 1")
    assert 404 == look(world, f"/runs/{run_id}?rank=2").status_code
    with pytest.raises(NotFoundError, match="run x does not exist"):
        read_rank_log("x", 0, 0, world.services)


@pytest.mark.parametrize("query", ["rank=-1", "rank=x", f"rank={10**30}", "after=-1", f"after={10**30}"])
def test_numbers_are_bounded(query: str) -> None:
    """They are checked before anything is read."""
    world, run_id = running()
    assert 422 == call(world, "GET", f"/api/runs/{run_id}/logs?{query}").status_code


def test_a_log_that_is_not_there_yet_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds before the submission, before the first line, and if it cannot be read."""
    world, run_id = running(rank_0="")
    assert "Rank 1 has written no log yet." == read_rank_log(run_id, 1, 0, world.services).problem
    assert read_rank_log(run_id, 0, 0, world.services).problem is None

    def fail(*_: object, **__: object) -> None:
        raise LogUnreadableError("no role")

    monkeypatch.setattr(world.jobs, "log_part", fail)
    assert "The log cannot be read now: no role" == read_rank_log(run_id, 0, 0, world.services).problem


def test_an_outage_is_no_end_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower of a run that has ended would lose the rest: it comes again."""
    world, run_id = running(rank_0="one\n")
    end(world, run_id)

    def fail(*_: object, **__: object) -> None:
        raise ServiceUnavailableError("storage did not answer")

    monkeypatch.setattr(world.jobs, "log_part", fail)
    assert 503 == call(world, "GET", f"/api/runs/{run_id}/logs").status_code


def test_the_page_of_a_run_shows_the_log_of_each_rank() -> None:
    """The page links to the other ranks and says where the rank runs."""
    place = RankPlace(rank=1, world_size=2, node=1, host="node-<b>")
    world, run_id = running(rank_0="root\n", rank_1=f"{place.to_line()}\nsecond \x1b[2J {SECRET}\n")
    page = look(world, f"/runs/{run_id}?rank=1").text
    assert "Log of rank 1" in page
    assert "rank 1 of 2 on host node-&lt;b&gt; (node 1)" in page
    assert ('href="?rank=0#log"' in page, "second" in page, "root\n" in page) == (True, True, False)
    assert ("\x1b" in page, "c2VjcmV0" in page) == (False, False)
    assert "Log of rank 0" in look(world, f"/runs/{run_id}").text


def placed(rank: int, num_ranks: int = 2, **met: tuple[str, ...]) -> str:
    """The log of a rank that says where it runs."""
    return RankPlace(rank=rank, world_size=num_ranks, node=rank, host=f"node-{rank}", **met).to_line() + "\n"


def test_a_run_says_where_each_rank_ran_and_whom_it_met() -> None:
    """Over HTTP and, where it is asked for, on the page; a script of the user's is no exception."""
    world, run_id = running(
        rank_0="x\n" + placed(0, nodes=("10.0.0.4", "10.0.0.5")), rank_1=placed(1, met=("a", "b"))
    )
    found = call(world, "GET", f"/api/runs/{run_id}/ranks").json()
    assert [(0, "node-0", []), (1, "node-1", ["a", "b"])] == [
        (place["rank"], place["host"], place["met"]) for place in found["places"]
    ]
    assert (2, None, None) == (found["num_ranks"], found["problem"], found["next"])
    page = look(world, f"/runs/{run_id}?hosts_from=0").text
    assert "rank 0 of 2 on host node-0 (node 0), nodes of the job: 10.0.0.4, 10.0.0.5" in page
    assert "rank 1 of 2 on host node-1 (node 1), has met the ranks of a, b" in page
    assert 'href="?rank=0&amp;hosts_from=0#hosts"' in look(world, f"/runs/{run_id}").text


def test_a_place_that_is_not_known_is_said_to_be() -> None:
    """No log, no such line, or the line of another rank: a script may print anything."""
    world, run_id = running(rank_0="no place\n")
    assert "Rank 0 does not say in its log where it runs." == read_rank_places(run_id, 0, world.services).problem
    world.jobs.logs |= {run_id: placed(1), f"{run_id}/1": placed(1)}
    found = read_rank_places(run_id, 0, world.services)
    assert [1] == [place.rank for place in found.places]
    assert [1] == [place.rank for place in read_rank_places(run_id, 1, world.services).places]
    del world.jobs.logs[f"{run_id}/1"]
    assert "Rank 1 has written no log yet." == read_rank_places(run_id, 1, world.services).problem
    with pytest.raises(NotFoundError, match="has no rank 2"):
        read_rank_places(run_id, 2, world.services)


def test_many_ranks_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer reads so many logs and no more, and says where the next one begins."""
    monkeypatch.setattr(rank_logs, "MAX_PLACES", 1)
    world, run_id = running(rank_0=placed(0), rank_1=placed(1))
    first = read_rank_places(run_id, 0, world.services)
    assert ([0], 1) == ([place.rank for place in first.places], first.next)
    assert 'hosts_from=1#hosts">Ranks from 1 on' in look(world, f"/runs/{run_id}?hosts_from=0").text
    last = read_rank_places(run_id, 1, world.services)
    assert ([1], None) == ([place.rank for place in last.places], last.next)
    assert 404 == call(world, "GET", f"/api/runs/{run_id}/ranks?first=2").status_code
