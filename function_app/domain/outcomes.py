"""Outcomes of which people and programs are notified, with their meaning, what to do, and links."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from function_app.domain.records import NotificationRecord
from function_app.domain.run_states import RunState

SUMMARY, TEST = "summary", "test"
"""Outcomes without an event of their own: summaries and test messages."""
BY_DEFAULT, EVERYTHING = "default", "everything"
RUN, VERSION, PIPELINE, SWEEP, LETTER, OTHER = "run", "version", "pipeline", "sweep", "letter", "other"
"""Kind of a notification's subject, which determines the links."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One kind of notification for people or programs."""

    title: str
    about: str
    meaning: str
    """What the outcome means for the reader."""
    action: str
    """What to do. ``{subject}`` stands for the run or version."""
    groups: frozenset[str]


def _outcome(title: str, about: str, groups: str, meaning: str, action: str) -> Outcome:
    return Outcome(title=title, about=about, meaning=meaning, action=action, groups=frozenset(groups.split()))


_NOTHING = "Nothing has to be done."
_WHY = "To see what happened: landfall why {subject}"
_KEPT = "No model comes of this run; the one that is registered stays the current one."
OUTCOMES: Mapping[str, Outcome] = {
    "shard_rejected": _outcome(
        "shard rejected",
        VERSION,
        "problems",
        "The version is incomplete, and is not trained on, until the shard is replaced.",
        "Correct the shard and upload it again under the same name. To see all of them: landfall status {subject}",
    ),
    "shards_rejected": _outcome(
        "more shards rejected",
        VERSION,
        "problems",
        "The version is incomplete, and is not trained on, until they are replaced.",
        "Correct the shards and upload them again. To see all of them: landfall status {subject}",
    ),
    "set_rejected": _outcome(
        "complete, but refused",
        VERSION,
        "problems",
        "The version is not trained on until its shards fit together.",
        "Upload the shards that the reasons name again. To see them: landfall status {subject}",
    ),
    "set_warned": _outcome(
        "complete, with warnings",
        VERSION,
        "problems",
        "The version is trained on as it is.",
        "If this is not intended, cancel the run and upload the data again: landfall status {subject}",
    ),
    "version_whole": _outcome(
        "complete",
        VERSION,
        "progress",
        "All shards are accepted, so a training can start.",
        _NOTHING,
    ),
    "version_stalled": _outcome(
        "stalled",
        VERSION,
        "problems",
        "The version is not trained on until its last shard has arrived.",
        "Upload the missing shards: landfall status {subject}",
    ),
    "version_changed": _outcome(
        "changed after it was complete",
        VERSION,
        "problems",
        "The registered model was trained on other data.",
        "To train on the new data: landfall submit {subject}",
    ),
    "version_waiting": _outcome(
        "waits in line",
        VERSION,
        "problems",
        "Runs of this pipeline or of other pipelines train first.",
        f"{_NOTHING} It starts by itself. To see the line: landfall status {{subject}}",
    ),
    "version_dropped": _outcome(
        "dropped from the line",
        VERSION,
        "problems",
        "This version is not trained on.",
        "To train on it: landfall submit {subject}",
    ),
    "drift_warned": _outcome(
        "data drifted",
        VERSION,
        "problems",
        "The model may perform worse on such data; the training continues.",
        "Check whether the figures are as expected: landfall status {subject}",
    ),
    "drift_blocked": _outcome(
        "data drifted, not trained on",
        VERSION,
        "problems",
        "No run was started, and the current model does not change.",
        "If the data are right, train on them: landfall submit {subject}",
    ),
    "run_submitted": _outcome(
        "submitted",
        RUN,
        "progress",
        "The job waits for its nodes.",
        f"{_NOTHING} To follow it: landfall run {{subject}}",
    ),
    "run_started": _outcome(
        "started",
        RUN,
        "progress",
        "The nodes train, and cost money from now on.",
        f"{_NOTHING} To follow it: landfall run {{subject}}",
    ),
    "run_waiting": _outcome(
        "stuck before its start",
        RUN,
        "problems stuck",
        "The training has not started, and there are no costs yet.",
        _WHY,
    ),
    "run_silent": _outcome(
        "stuck, does not respond",
        RUN,
        "problems stuck urgent",
        "The nodes may be gone, or cost money for nothing.",
        "Check it, or end it: landfall cancel {subject}",
    ),
    RunState.REGISTERED: _outcome(
        "registered",
        RUN,
        "ends",
        "A new version of the model can be served.",
        f"{_NOTHING} To look at it: landfall run {{subject}}",
    ),
    RunState.NOT_REGISTERED: _outcome("trained, not registered", RUN, "ends problems", _KEPT, _WHY),
    RunState.FAILED: _outcome("failed", RUN, "ends problems", _KEPT, _WHY),
    RunState.CANCELED: _outcome("canceled", RUN, "ends", _KEPT, _WHY),
    RunState.LOST: _outcome(
        "lost",
        RUN,
        "ends problems urgent",
        f"Its result is unknown, and its nodes may still cost money. {_KEPT}",
        _WHY,
    ),
    "sweep_ended": _outcome(
        "option sweep ended",
        SWEEP,
        "ends",
        "At most one model of all its runs is registered.",
        "To see its runs side by side: landfall compare {subject}",
    ),
    "sweep_canceled": _outcome(
        "option sweep canceled",
        SWEEP,
        "ends",
        "No model of its runs is registered.",
        "To see its runs side by side: landfall compare {subject}",
    ),
    "unknown_job": _outcome(
        "unknown job",
        OTHER,
        "problems urgent",
        "It costs money, and its model would not be registered.",
        "Cancel it in the studio unless it is needed.",
    ),
    "pipeline_out_of_service": _outcome(
        "out of service",
        PIPELINE,
        "problems urgent",
        "Uploads are kept, but nothing is validated or trained.",
        "Correct the file. To check it: landfall check FILE",
    ),
    "dead_letter": _outcome(
        "given up",
        LETTER,
        "problems urgent",
        "The request in the message has not been carried out.",
        "Fix the cause, then: landfall dead-letters replay ID",
    ),
    SUMMARY: _outcome(
        "summary",
        OTHER,
        "",
        "These notifications were due at the same time; some may be urgent.",
        "Read each line.",
    ),
    TEST: _outcome("test", OTHER, "", "Notifications reach you.", _NOTHING),
}
"""Name → outcome. ``docs/events`` has the JSON Schema of each outcome's CloudEvent."""
GROUPS = (BY_DEFAULT, EVERYTHING, "ends", "problems", "progress", "stuck", "urgent")


def outcomes_in(names: Iterable[str]) -> frozenset[str]:
    """Expand names of outcomes and groups to names of outcomes."""
    return frozenset(
        known for known, outcome in OUTCOMES.items() for name in names if _is_in(known, outcome, name)
    ) | {SUMMARY, TEST}


def _is_in(known: str, outcome: Outcome, name: str) -> bool:
    if name == BY_DEFAULT:
        return "progress" not in outcome.groups
    return name in (known, EVERYTHING) or name in outcome.groups


def page_of(about: str, subject: str) -> str:
    """Return the path of the page about a notification's subject; the overview's if it has none."""
    name = quote(subject)
    paths = {
        RUN: f"/runs/{name}",
        VERSION: f"/datasets/{name}",
        PIPELINE: "/pipelines",
        SWEEP: f"/compare?sweep={name}",
        LETTER: "/dead-letters",
    }
    return paths.get(about, "/")


@dataclass(frozen=True, kw_only=True)
class Links:
    """Links for people to the pages of this deployment and to Azure ML studio; None if there are none."""

    pages: str | None = None
    """Address of the app, without a slash at its end."""
    workspace_id: str | None = None

    def of(self, about: str, subject: str, content: Mapping[str, Any]) -> dict[str, str]:
        """Return the links of a notification: ``page`` and ``studio``, if known."""
        found = {}
        if self.pages is not None:
            found["page"] = self.pages + page_of(about, subject)
        studio = content.get("studio_url")
        if about == RUN and self.workspace_id is not None:
            studio = f"https://ml.azure.com/runs/{quote(subject)}?wsid={self.workspace_id}"
        if isinstance(studio, str):
            found["studio"] = studio
        return found


NO_LINKS = Links()


def explained(outcome: str, subject: str, content: Mapping[str, Any], links: Links) -> dict[str, Any]:
    """Return the explanation of a notification: its meaning, what to do, and links."""
    known = OUTCOMES.get(outcome)
    if known is None:
        return {"meaning": "", "action": "", "links": {}}
    return {
        "meaning": known.meaning,
        "action": known.action.replace("{subject}", subject),
        "links": links.of(known.about, subject, content),
    }


def for_people(notification: NotificationRecord, links: Links) -> tuple[str, str]:
    """Return title and text for people: what happened, what it means, what to do, and links."""
    outcome, content = notification.outcome, notification.content
    more = explained(outcome, notification.subject, content, links)
    dataset, version = content.get("dataset"), content.get("version")
    about = f"{dataset}/{version}" if dataset and version else notification.subject
    title = OUTCOMES[outcome].title if outcome in OUTCOMES else outcome
    lines = [str(content.get("text", ""))]
    lines += [f"What it means: {more['meaning']}"] if more["meaning"] else []
    lines += [f"What to do: {more['action']}"] if more["action"] else []
    lines += [f"{name.capitalize()}: {address}" for name, address in more["links"].items()]
    return (f"Landfall: {title}" if outcome in (SUMMARY, TEST) else f"{about}: {title}"), "\n".join(lines)
