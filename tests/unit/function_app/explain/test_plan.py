"""Plans: what would start and why, time and cost of each size, and what earlier predictions teach."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath
from typing import Any

import pytest

from function_app.config.clusters import Clusters
from function_app.config.pipeline_files import parse_clusters
from function_app.config.prices import PlanFacts
from function_app.domain.capacity import ROLE_MISSING, Capacity, ClusterNow, OfferedFamily, Quota
from function_app.domain.errors import OverrideError, ServiceUnavailableError, VersionNotWholeError
from function_app.domain.records import DatasetVersion, RunRecord
from function_app.explain.plan import RunPlan, plan_request
from function_app.planning.estimates import WORTH, Estimate, one_node
from function_app.planning.predictions import WRONG, outcome_of
from horovod_lint import ScriptFile
from shared.errors import LandfallError
from tests.support.world import ALL_SHARDS, CLUSTERS, SIZES, TRAIN_SHARDS, World, own_script, read_pipeline
from tests.support.world import PIPELINE as TEXT
from tests.unit.function_app.planning.worlds import facts, planning_world, train_for
from tests.unit.function_app.web.client import call, look


def planned(world: World, version: str = "v1", **request: object) -> RunPlan:
    return plan_request(DatasetVersion(dataset="digits", version=version), world.services, **request)  # type: ignore[arg-type]


def whole(version: str = "v1") -> World:
    """A world with a complete version that nothing has trained."""
    world = planning_world()
    world.upload_shards(*ALL_SHARDS, version=version)
    return world


def size(plan: RunPlan, cluster: str, num_nodes: int) -> Estimate:
    return next(one for one in plan.estimates if (one.cluster, one.num_nodes) == (cluster, num_nodes))


def error(run: RunRecord) -> float:
    outcome = outcome_of(run)
    assert outcome is not None
    return outcome.error


def test_a_plan_changes_nothing() -> None:
    world = whole()
    before = (world.documents.documents.copy(), world.ledger.run_rows.copy(), len(world.ledger.history("digits/v1")))
    planned(world, overrides={"epochs": 5}, force=True)

    after = (world.documents.documents, world.ledger.run_rows, len(world.ledger.history("digits/v1")))
    assert before == after
    assert {} == world.jobs.submitted


def test_a_plan_names_the_job_that_is_then_submitted() -> None:
    world = whole()
    plan = planned(world)
    world.serve_requests()

    assert world.only_run().run_id == plan.run_id
    [spec] = world.jobs.submitted.values()
    assert (spec.command, spec.num_nodes) == (
        plan.body["properties"]["command"],
        plan.body["properties"]["resources"]["instanceCount"],
    )


def test_a_request_that_was_made_before_is_named_with_its_reason() -> None:
    world = planning_world()
    run = train_for(world, "v1", record_s=1.0)
    plan, forced = planned(world), planned(world, force=True)

    assert plan.met is not None
    assert run.run_id == plan.met.run_id
    assert f"was requested before: {run.run_id} has ended registered" in plan.reason
    assert forced.met is None
    assert "it is forced" in forced.reason
    assert planned(world, overrides={"epochs": 7}).met is None


def test_a_plan_says_what_would_be_refused() -> None:
    world = whole()
    world.change_pipeline(register_=None, train=read_pipeline(TEXT.replace("batch_size: 1", "batch_size: 99")).train)

    assert any("99" in problem for problem in planned(world).problems)


def test_an_incomplete_version_and_a_wrong_override_have_no_plan() -> None:
    world = planning_world()
    world.upload_shards(TRAIN_SHARDS[0])
    with pytest.raises(VersionNotWholeError):
        planned(world)
    with pytest.raises(OverrideError, match="epochs"):
        planned(world, overrides={"epochs": 1000})


def test_every_cluster_has_a_row_for_each_number_of_nodes() -> None:
    plan = planned(whole())

    assert ["landfall-gpu", "landfall-a100", "landfall-cpu"] == [one.name for one in plan.clusters]
    assert [1, 2, 3, 4] == [one.num_nodes for one in plan.estimates if one.cluster == "landfall-gpu"]
    assert [8, 16, 24, 32] == [one.num_ranks for one in plan.estimates if one.cluster == "landfall-a100"]
    assert "need 24 records for one step, and there are 22" in str(size(plan, "landfall-a100", 3).problem)
    assert "InfiniBand" in plan.clusters[1].network
    assert "Ethernet" in plan.clusters[0].network
    assert "retired" in plan.clusters[0].life_cycle
    assert "retired" in str(size(plan, "landfall-gpu", 1).problem)


GPU_QUOTA = Quota(name="Standard NDASv4 Family Cluster Dedicated vCPUs", used=96, limit=192)
READABLE = Capacity(
    clusters={"landfall-a100": ClusterNow(num_nodes=1, max_nodes=4)},
    families={"standard_nd96asr_v4": OfferedFamily(name="standardNDASv4Family", vcpus=96)},
    quotas=(GPU_QUOTA,),
)


def test_quota_and_nodes_are_read_and_bound_the_recommendation() -> None:
    """Sizes beyond the quota keep their figures, and are not recommended."""
    world = whole()
    free = planned(world)
    world.jobs.capacity_now = READABLE
    plan = planned(world)
    quotas = {one.name: one.quota for one in plan.clusters}

    assert (
        "Standard NDASv4 Family Cluster Dedicated vCPUs: 96 of 192 vCPUs in use; a node takes 96, so that it is "
        "enough for 2 nodes, and for 1 more now"
    ) == quotas["landfall-a100"]
    assert "unknown: the region has no quota for Standard_D8s_v5, or does not offer it" == quotas["landfall-cpu"]
    assert ["the workspace has no such cluster: `landfall publish` creates it", "1 node of at most 4"] == [
        one.now for one in plan.clusters[:2]
    ]
    world.jobs.capacity_now = replace(READABLE, quotas=(replace(GPU_QUOTA, limit=100),))
    tight = planned(world)
    assert (None, "the quota is enough for 1 node") == (
        size(free, "landfall-a100", 2).problem,
        size(tight, "landfall-a100", 2).problem,
    )
    assert size(free, "landfall-a100", 2).cost == size(tight, "landfall-a100", 2).cost
    world.jobs.capacity_now = replace(READABLE, quotas=(replace(GPU_QUOTA, limit=0),))
    assert free.recommended is not None
    assert "landfall-a100" == free.recommended.cluster
    assert planned(world).recommended is None


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        (Capacity(refusal=ROLE_MISSING), "unknown: the app's identity may not read the region's quotas, which takes"),
        (ServiceUnavailableError("list the clusters of the workspace: Azure ML did not answer"), "did not answer"),
    ],
)
def test_what_is_not_known_of_quota_is_said_with_its_reason(seen: Capacity | LandfallError, says: str) -> None:
    """A plan is made nevertheless."""
    world = whole()
    if isinstance(seen, Capacity):
        world.jobs.capacity_now = seen
    else:
        world.jobs.capacity_refusal = seen

    assert all(one.quota.startswith("unknown: ") and says in one.quota for one in planned(world).clusters)


def test_the_ranks_plan_is_that_of_the_training() -> None:
    own = planned(whole()).own

    assert own is not None
    assert (2, 2, 2, 11) == (own.num_nodes, own.num_ranks, own.global_batch, own.steps)


def test_cost_has_start_and_idle_tail_of_all_nodes() -> None:
    one = size(planned(whole()), "landfall-a100", 2)

    assert one.run_s is not None
    assert one.cost is not None
    assert pytest.approx(2 * 27.20 * (300 + one.run_s + 120) / 3600) == one.cost
    assert one.total_s == 300 + one.run_s
    assert (one.run_low_s or 0) < one.run_s < (one.run_high_s or 0)


def test_the_price_of_clusters_yaml_goes_before_the_dated_one() -> None:
    world = whole()
    text = CLUSTERS.replace(
        "{vm_size: Standard_ND96asr_v4}", "{vm_size: Standard_ND96asr_v4, price_per_node_hour: 1.5}"
    )
    own = Clusters(clusters=parse_clusters(text.encode(), "clusters.yaml"), sizes=SIZES)
    world.services = replace(world.services, plan_facts=replace(facts(), clusters=own))

    assert 1.5 == size(planned(world), "landfall-a100", 1).price


def test_without_prices_there_is_no_cost_and_no_recommendation() -> None:
    world = whole()
    world.services = replace(world.services, plan_facts=PlanFacts(clusters=facts().clusters))
    plan = planned(world)

    assert (None, None, None) == (plan.as_of, plan.recommended, size(plan, "landfall-a100", 1).cost)
    assert "prices.yaml is missing" in plan.throughput


def test_the_recommended_size_is_the_fastest_that_is_worth_its_cost() -> None:
    world = planning_world()
    train_for(world, "v0", record_s=100.0)
    world.upload_shards(*ALL_SHARDS)
    plan = planned(world)
    usable = [one for one in plan.estimates if one.cost is not None and one.problem is None]
    best = plan.recommended

    assert best is not None
    assert best.cost is not None
    assert len(usable) > 1
    least = min(one.cost or 0 for one in usable)
    worth = [one for one in usable if (one.cost or 0) <= WORTH * least]
    assert best.cost <= WORTH * least
    assert all((best.total_s or 0) <= (one.total_s or 0) for one in worth)


def test_one_node_with_more_gpus_is_judged_against_more_nodes() -> None:
    world = planning_world()
    train_for(world, "v0", record_s=100.0)
    world.upload_shards(*ALL_SHARDS)
    judged = planned(world).one_node

    assert judged is not None
    assert (1, 8, 2) == (judged.one.num_nodes, judged.one.num_ranks, judged.several.num_nodes)
    assert "one node with more GPUs is faster" in judged.in_words("USD")
    assert f"{judged.one.cost:,.2f} USD" in judged.in_words("USD")


@pytest.mark.parametrize(
    ("several_cost", "costs", "chosen", "verdict"),
    [
        (9.0, (None, 5.0), 5.0, "one node with more GPUs is faster and costs no more: "),
        (9.0, (None,), None, "one node with more GPUs is faster: "),
        (None, (5.0,), 5.0, "one node with more GPUs is faster: "),
    ],
)
def test_an_unknown_cost_is_compared_with_no_other(
    several_cost: float | None, costs: tuple[float | None, ...], chosen: float | None, verdict: str
) -> None:
    """A size without a price is not the cheapest one, and the plan does not say that it costs no more."""
    known = Estimate(cluster="a", vm_size="Standard_ND96asr_v4", num_nodes=1, num_ranks=8, run_s=60.0)
    several = replace(known, num_nodes=2, num_ranks=2, run_s=600.0, cost=several_cost)
    judged = one_node(several, [replace(known, cost=cost) for cost in costs])

    assert judged is not None
    assert chosen == judged.one.cost
    assert judged.in_words("USD").startswith(verdict)


def test_a_size_beyond_the_time_limit_is_not_recommended() -> None:
    world = planning_world()
    train_for(world, "v0", record_s=1000.0)
    world.upload_shards(*ALL_SHARDS)
    plan = planned(world)

    assert "would exceed train.timeout_s" in str(size(plan, "landfall-a100", 1).problem)
    assert plan.recommended is None


def test_a_plan_says_where_its_figures_are_from() -> None:
    world = whole()
    assert "published figures" in planned(world).throughput
    world = planning_world()
    train_for(world, "v1", record_s=1.0)
    assert "measured in 1 earlier run" in planned(world).throughput


def test_a_prediction_is_kept_with_the_run_and_compared_at_its_end() -> None:
    world = planning_world()
    run = train_for(world, "v1", record_s=10.0)
    outcome = outcome_of(run)

    assert outcome is not None
    assert ("published", "2025-12-31") == (outcome.expected.source, outcome.expected.as_of)
    assert pytest.approx(60 + 66 * 10.0, abs=1) == outcome.measured_s
    assert outcome.is_wrong
    assert outcome.error > WRONG
    assert pytest.approx(2 * 3.06 * outcome.measured_s / 3600) == outcome.measured_cost


def test_a_plan_that_was_wrong_by_more_than_a_third_teaches_the_next_one() -> None:
    world = planning_world()
    first = train_for(world, "v1", record_s=10.0)
    second = train_for(world, "v2", record_s=10.0)

    assert abs(error(first)) > WRONG > 0.05 > abs(error(second))


def test_what_many_runs_have_taught_gives_way_to_what_has_changed() -> None:
    world = planning_world()
    for number in range(6):
        train_for(world, f"old{number}", record_s=1.0)
    changed = train_for(world, "new0", record_s=4.0)
    following = train_for(world, "new1", record_s=4.0)

    assert abs(error(changed)) > WRONG > 0.05 > abs(error(following))


def test_a_failed_or_repeated_attempt_is_not_compared() -> None:
    world = planning_world()
    run = world.train()
    world.jobs.become(run.run_id, "Failed")

    assert {} != run.prediction
    assert outcome_of(world.follow(run)) is None


def test_runs_of_other_networks_teach_nothing() -> None:
    world = planning_world()
    train_for(world, "v1", record_s=10.0)
    world.upload_shards(*ALL_SHARDS, version="v2")
    pipeline = world.services.pipelines["digits"]
    other = replace(pipeline.train.options, model_name="ResNet50", image_height=32, image_width=32)
    world.services = replace(
        world.services,
        pipelines={
            "digits": pipeline.model_copy(update={"train": pipeline.train.model_copy(update={"options": other})})
        },
    )

    assert "published figures" in planned(world, "v2").throughput


def test_a_script_of_ones_own_has_a_plan_without_figures_then_with_those_of_its_runs() -> None:
    world = planning_world()
    world.services = replace(
        world.services,
        pipelines={"digits": read_pipeline(own_script(TEXT))},
        read_script=lambda _: b"import horovod.tensorflow as hvd\nhvd.init()\n",
    )
    world.upload_shards(*ALL_SHARDS)
    plan = planned(world)

    assert "your own script" in plan.throughput
    assert plan.own is not None
    assert (None, None) == (plan.own.steps, plan.own.run_s)


def test_a_plan_reads_a_script_with_its_modules_as_a_submission_does() -> None:
    """What would refuse the request is a problem of its plan."""
    world = planning_world()
    helper = ScriptFile(path=PurePath("/scripts/helper.py"), name="scripts/helper.py", content=b"return 1\n")
    world.services = replace(
        world.services,
        pipelines={"digits": read_pipeline(own_script(TEXT))},
        read_script=lambda _: b"import helper\n",
        read_modules=lambda _: {helper.path: helper},
    )
    world.upload_shards(*ALL_SHARDS)
    assert [True] == ["scripts/x.py has 1 error" in problem for problem in planned(world).problems]
    assert () == planned(world, force=True).problems


DAMAGED: tuple[tuple[str, dict[str, object]], ...] = (
    ("pace", {"record_s": "fast", "job_s": [], "start_s": None}),
    ("pace", {"record_s": float("nan")}),
    ("prediction", {"run_s": True, "vm_size": 7}),
    ("prediction", {"run_low_s": None, "price": "dear"}),
    ("spec", {"compute": None, "command": "python 'unclosed"}),
)


@pytest.mark.parametrize(("member", "damage"), DAMAGED)
def test_damaged_rows_keep_no_run_from_being_submitted(member: str, damage: dict[str, object]) -> None:
    """They do not keep the next plan from being made either."""
    world = planning_world()
    first = train_for(world, "v1", record_s=10.0)
    changes: dict[str, Any] = {member: {**getattr(first, member), **damage}}
    world.ledger.run_rows[first.run_id] = replace(world.stands(first), **changes)
    world.upload_shards(*ALL_SHARDS, version="v2")
    assert 200 == call(world, "GET", "/api/datasets/digits/v2/plan").status_code
    assert 200 == look(world, "/datasets/digits/v2/plan").status_code
    world.serve_requests()

    second = next(run for run in world.ledger.runs() if run.run_id != first.run_id)
    assert (True, True) == (second.run_id in world.jobs.submitted, second.submitted_at is not None)


def test_a_damaged_manifest_leaves_a_plan_without_times() -> None:
    world = whole()
    world.overwrite_manifests(b"{}")
    plan = planned(world)

    assert ("the manifest cannot be read, so the records are not known",) == plan.validation
    assert ({None}, None) == ({one.run_s for one in plan.estimates}, plan.recommended)


def test_a_wrong_prices_yaml_costs_a_plan_its_prices_and_no_run_its_submission() -> None:
    world = whole()
    wrong = PlanFacts(clusters=facts().clusters, problems=("prices.yaml: as_of: is required",))
    world.services = replace(world.services, plan_facts=wrong)
    plan = planned(world)
    world.serve_requests()

    assert ((wrong.problems[0],), None, None) == (plan.price_problems, plan.as_of, plan.recommended)
    assert world.only_run().submitted_at is not None


def test_old_prices_are_said_to_be_old() -> None:
    world = whole()
    [old] = planned(world).price_problems
    prices = facts().prices
    assert prices is not None
    fresh = prices.model_copy(update={"as_of": world.clock().date()})
    world.services = replace(world.services, plan_facts=replace(facts(), prices=fresh))

    assert "prices.yaml is 324 days old (as_of: 2025-12-31)" in old
    assert () == planned(world).price_problems
