"""``landfall plan``: the time and cost of a run before it is submitted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import click

from cli.options import TRAINABLE, as_json_option, with_api
from cli.remote.api_client import ApiClient
from cli.screen import answer

HOUR_S, MINUTE_S = 3600, 60
MAX_OUTCOMES = 5
BAR_COLUMNS = 20


@click.command(epilog="Example: landfall plan digits/2026-11-20")
@click.argument("target", type=TRAINABLE, metavar="DATASET[/VERSION]")
@as_json_option
@with_api
def plan(client: ApiClient, target: tuple[str, str | None], *, as_json: bool) -> None:
    """Show the time and cost of a run on a complete version, and change nothing.

    The plan says whether a new run would start, which data it trains on, its time and cost on each cluster with each
    number of nodes, and which of them to choose. For synthetic data, pass DATASET without a version. With --json, the
    plan includes the body of the request to Azure ML. To plan a run with other options, use `landfall submit
    --dry-run`.
    """
    dataset, version = target
    if version is None:  # the app knows whether the dataset is synthetic
        found = client.submit(dataset, None, {}, dry_run=True)
    else:
        found = client.get(f"/api/datasets/{quote(dataset, safe='')}/{quote(version, safe='')}/plan")
    answer(found, describe_plan(found), as_json=as_json)


def describe_plan(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that describe a plan, as the API returns it."""
    yield f"{plan['dataset']}/{plan['version']}, pipeline {plan['pipeline']}: {plan['reason']}"
    for problem in plan["problems"]:
        yield f"  would be refused: {problem}"
    for text in plan["validation"]:
        yield f"  {text}"
    own = plan["own"]
    if own is not None:
        yield f"  ranks: {own['num_ranks']} on {_nodes(own)} of {own['cluster']}{_batches(own, plan)}"
    yield f"  throughput: {plan['throughput']}"
    if plan["as_of"]:
        yield f"  prices and figures as of {plan['as_of']}; node start and idle time at the end are included"
    else:
        yield "  there are no prices and figures: prices.yaml does not exist next to the pipelines, or is wrong"
    for problem in plan["price_problems"]:
        yield f"  {problem}"
    yield from _clusters(plan)
    yield from _chart(plan)
    best = plan["recommended"]
    if best is not None:
        yield f"  recommended: {_nodes(best)} of {best['cluster']}, {_size(best, plan)}"
        yield "    the fastest of those that cost at most a quarter more than the cheapest"
    if plan["one_node"]:
        yield f"  {plan['one_node']}"
    yield from _outcomes(plan)
    yield f"  job: {plan['run_id']}; `--json` shows its body"


def _batches(own: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    if own["steps"] is None:
        return ""
    return f", {plan['epochs']} epochs of {own['steps']:,} steps of {own['global_batch']:,} records"


def _clusters(plan: Mapping[str, Any]) -> Iterator[str]:
    quotas = {cluster["quota"] for cluster in plan["clusters"]}
    if len(quotas) == 1:  # for example if the app may not read it
        yield f"  quota: {quotas.pop()}"
    for cluster in plan["clusters"]:
        mark = ", which the pipeline names" if cluster["is_own"] else ""
        price = cluster["price_per_node_hour"]
        cost = "without a price" if price is None else f"{price:,.2f} {plan['currency']} a node and hour"
        yield f"  {cluster['name']}{mark}: {cluster['vm_size']}, {cost}"
        yield f"    {cluster['network']}; {cluster['life_cycle']}"
        yield f"    now: {cluster['now']}"
        if quotas:
            yield f"    quota: {cluster['quota']}"
        for one in plan["estimates"]:
            if one["cluster"] == cluster["name"]:
                problem = f"; {one['problem']}" if one["problem"] else ""
                yield f"    {_nodes(one):>9}  {one['num_ranks']:>4} ranks  {_size(one, plan)}{problem}"


def _chart(plan: Mapping[str, Any]) -> Iterator[str]:
    """Yield a bar for the time on each size, from the submission to the end, with its cost."""
    timed = [one for one in plan["estimates"] if one["total_s"]]
    if not timed:
        return
    yield "  time, relative to the longest; cost:"
    longest, widest = max(one["total_s"] for one in timed), max(len(one["cluster"]) for one in timed)
    for one in timed:
        bar = "#" * max(1, round(BAR_COLUMNS * one["total_s"] / longest))
        cost = "" if one["cost"] is None else f"  {one['cost']:,.2f} {plan['currency']}"
        yield f"    {one['cluster']:<{widest}}  {one['num_nodes']:>3}  {bar:<{BAR_COLUMNS}}{cost}"


def _nodes(one: Mapping[str, Any]) -> str:
    return f"{one['num_nodes']} {'node' if one['num_nodes'] == 1 else 'nodes'}"


def _size(one: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    """Return time and cost of one size, with their intervals."""
    if one["run_s"] is None:
        return "time unknown"
    low, high = (duration(one["start_s"] + one[name]) for name in ("run_low_s", "run_high_s"))
    text = f"{duration(one['total_s'])} ({low} to {high})"
    if one["cost"] is None:
        return text
    return f"{text}, {one['cost']:,.2f} {plan['currency']} ({one['cost_low']:,.2f} to {one['cost_high']:,.2f})"


def _outcomes(plan: Mapping[str, Any]) -> Iterator[str]:
    for one in plan["outcomes"][:MAX_OUTCOMES]:
        yield f"  earlier run {one['run_id']}: {described_outcome(one)}"


def described_outcome(one: Mapping[str, Any]) -> str:
    """Return a prediction and, as far as the run has progressed, the measured values."""
    predicted = f"predicted {duration(one['predicted_s'])} ({duration(one['low_s'])} to {duration(one['high_s'])})"
    if one["predicted_cost"] is not None:
        predicted += f" and {one['predicted_cost']:,.2f}"
    if one["as_of"]:
        predicted += f" (prices as of {one['as_of']})"
    if one["measured_s"] is None:
        return predicted
    cost = "" if one["measured_cost"] is None else f" and {one['measured_cost']:,.2f}"
    taught = ", more than a third: later plans use only this run and newer ones" if one["is_wrong"] else ""
    return f"{predicted}, took {duration(one['measured_s'])}{cost}: off by {one['error']:+.0%}{taught}"


def duration(seconds: float) -> str:
    """Return a duration in the largest unit that it has more than two of."""
    if seconds >= 2 * HOUR_S:
        return f"{seconds / HOUR_S:,.1f} h"
    return f"{seconds / MINUTE_S:.1f} min" if seconds >= 2 * MINUTE_S else f"{seconds:.0f} s"
