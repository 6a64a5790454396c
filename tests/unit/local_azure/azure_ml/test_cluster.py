"""The simulated cluster, with a clock that the test moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_azure.azure_ml.cluster import Cluster, Delays, NodeState, Scale


def a_cluster(min_nodes: int = 0, max_nodes: int = 4, idle_s: float = 120) -> Cluster:
    """A cluster whose nodes take 10 s to come and 5 s to go."""
    scale = Scale(min_nodes=min_nodes, max_nodes=max_nodes, idle_s=idle_s)
    return Cluster(scale=scale, delays=Delays(start_s=10, leave_s=5))


def states(cluster: Cluster) -> list[str]:
    """State of every node."""
    return [str(node.state) for node in cluster.nodes]


def settle(cluster: Cluster, now_s: float) -> None:
    """Tick twice: a node that became idle is handed out in the same tick, one that left makes room in the next."""
    cluster.tick(now_s)
    cluster.tick(now_s)


def test_nothing_runs_without_a_request() -> None:
    """The cluster starts at zero."""
    cluster = a_cluster()
    settle(cluster, 1000)
    assert [] == states(cluster)


def test_a_run_waits_for_its_nodes_to_come_up() -> None:
    """Exactly as many as it asked for, and only after the delay."""
    cluster = a_cluster()
    cluster.ask("r1", 2)
    settle(cluster, 0)
    before = (states(cluster), cluster.holds("r1"))
    settle(cluster, 9)
    still = cluster.holds("r1")
    settle(cluster, 10)
    assert ((["preparing"] * 2, False), False) == (before, still)
    assert (["running"] * 2, True) == (states(cluster), cluster.holds("r1"))


def test_an_idle_node_is_taken_at_once() -> None:
    """No new node starts while a free one is there."""
    cluster = a_cluster()
    cluster.ask("r1", 1)
    settle(cluster, 0)
    settle(cluster, 10)
    cluster.release("r1", 20)
    cluster.ask("r2", 1)
    settle(cluster, 21)
    assert (["running"], True) == (states(cluster), cluster.holds("r2"))


def test_the_maximum_holds_and_the_next_run_waits() -> None:
    """A run that does not fit waits until another releases its nodes."""
    cluster = a_cluster(max_nodes=2)
    cluster.ask("r1", 2)
    cluster.ask("r2", 1)
    settle(cluster, 0)
    settle(cluster, 10)
    waiting = (dict(cluster.waiting), len(cluster.nodes))
    cluster.release("r1", 30)
    settle(cluster, 30)
    assert (({"r2": 1}, 2), True) == (waiting, cluster.holds("r2"))


def test_a_small_run_does_not_overtake_a_large_one() -> None:
    """First come, first served, or a large run could wait for ever."""
    cluster = a_cluster(max_nodes=2)
    cluster.ask("holder", 1)
    settle(cluster, 0)
    settle(cluster, 10)
    cluster.ask("large", 2)
    cluster.ask("small", 1)
    settle(cluster, 20)
    settle(cluster, 40)
    assert (False, False) == (cluster.holds("large"), cluster.holds("small"))


def test_idle_nodes_leave_after_their_time() -> None:
    """They do not leave a second earlier, and leaving takes time."""
    cluster = a_cluster()
    cluster.ask("r1", 2)
    settle(cluster, 0)
    settle(cluster, 10)
    cluster.release("r1", 100)
    seen = []
    for now_s in (219, 220, 224, 225):
        cluster.tick(now_s)
        seen.append(states(cluster))
    assert [["idle"] * 2, ["leaving"] * 2, ["leaving"] * 2, []] == seen


def test_the_minimum_stays() -> None:
    """Nodes of the minimum come up unasked and never leave."""
    cluster = a_cluster(min_nodes=1)
    settle(cluster, 0)
    settle(cluster, 10)
    settle(cluster, 10_000)
    assert ["idle"] == states(cluster)


def test_a_run_that_gives_up_leaves_the_queue() -> None:
    """Cancelling a queued run frees its place."""
    cluster = a_cluster()
    cluster.ask("r1", 2)
    cluster.release("r1", 0)
    settle(cluster, 1)
    assert ({}, []) == (cluster.waiting, states(cluster))


def test_a_wait_keeps_idle_nodes() -> None:
    """A node does not leave while a run waits for company for it."""
    cluster = a_cluster(idle_s=1)
    cluster.ask("r1", 1)
    settle(cluster, 0)
    settle(cluster, 10)
    cluster.release("r1", 20)
    cluster.ask("r2", 2)
    settle(cluster, 25)
    assert 1 == cluster.count(NodeState.IDLE)


@given(
    st.lists(
        st.tuples(st.sampled_from(["ask", "release", "wait"]), st.integers(0, 3), st.integers(1, 4)), max_size=40
    )
)
def test_no_history_breaks_the_cluster(steps: list[tuple[str, int, int]]) -> None:
    """Never more nodes than the maximum, never a node without its run, and the last run gets nodes too."""
    cluster, now_s = a_cluster(), 0.0
    for action, number, count in steps:
        run = f"r{number}"
        if action == "ask" and run not in cluster.waiting and not cluster.holds(run):
            cluster.ask(run, count)
        elif action == "release":
            cluster.release(run, now_s)
        now_s += count
        cluster.tick(now_s)
        assert len(cluster.nodes) <= cluster.scale.max_nodes
        assert all((node.run is not None) == (node.state is NodeState.RUNNING) for node in cluster.nodes)
    for number in range(4):
        cluster.release(f"r{number}", now_s)
    cluster.ask("last", 4)
    for later_s in range(0, 60, 5):
        cluster.tick(now_s + later_s)
    assert cluster.holds("last")


@pytest.mark.parametrize(("nodes", "target"), [(3, 3), (0, 0)])
def test_the_target_counts_what_stays(nodes: int, target: int) -> None:
    """Nodes that come count, nodes that leave do not."""
    cluster = a_cluster()
    if nodes:
        cluster.ask("r1", nodes)
    settle(cluster, 0)
    assert target == cluster.target
