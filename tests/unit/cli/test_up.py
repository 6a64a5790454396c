"""`landfall up`: what it says of pipelines that cannot be used."""

from __future__ import annotations

from typing import Any

from cli.up import describe_outages, nodes_in_words


def test_pipelines_out_of_service_are_named_with_their_problems() -> None:
    """Otherwise an upload to which nothing happens is the first sign."""
    pipelines: list[dict[str, Any]] = [
        {"dataset": None, "state": "out_of_service", "problems": ["x.yaml: not valid YAML"]},
        {"dataset": "digits", "state": "out_of_service", "problems": ["digits.yaml: train: is required"]},
        {"dataset": "cats", "state": "in_service", "problems": []},
    ]
    assert [
        "Out of service: a file whose dataset cannot be read",
        "  x.yaml: not valid YAML",
        "Out of service: dataset digits",
        "  digits.yaml: train: is required",
        "Edit the files and save them: they are read again. A setting is read when the twin starts.",
    ] == list(describe_outages(pipelines))


def test_a_whole_folder_needs_no_words() -> None:
    """Most starts are like that."""
    assert [] == list(describe_outages([{"dataset": "cats", "state": "in_service", "problems": []}]))


def test_simulated_nodes_are_announced_with_the_reason() -> None:
    """What the machine allows decides, so the way to change it is said at the start."""
    why = "network namespaces cannot be used: there is no ip(8): install iproute2"
    assert f"simulated, without addresses of their own: {why}" == nodes_in_words(why)
    assert "hosts in network namespaces of this machine" == nodes_in_words(None)
