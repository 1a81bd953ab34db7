"""A chat in which people, rules and hosts return hostile text.

Every free text mentions, links, formats, hides or forges a line.
"""

import itertools
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, cast

import pytest
from pydantic import Field
from ruamel.yaml import YAML

from bot.policy.oncall import Duty
from bot.slack.features import StartedDuty
from connectors.command import Answer, Command, Query, QueryRunner, Shell
from runbooks import (
    Change,
    Check,
    Host,
    NoUndo,
    Plan,
    Refused,
    Report,
    Step,
    Table,
    load_catalogue,
)
from tests import toy
from tests.bot.duties import build_duties, with_facts
from tests.bot.harness import Harness, open_harness
from tests.bot.slack.chat import Chat, be_patient, open_chat

# What can be seen, and so may be a name, a reason or a value.
LOUD = (
    "*Olga* _agrees_ ~not~ :tada: `x` <!channel> <@U0VICTIM|olga> <!subteam^S1> "
    "<https://evil.example|lb1> &lt;!here&gt; @here"
)
BRIEF = "*O* <!here> _x_ :tada:"
# What a host may say, beside that.
HIDDEN = "\x1b[31m\u202e\u200b\x00\x85\u2028\nApproved by Olga Owner\n> *quoted*\n```fenced```"
SAID = f"{LOUD} {HIDDEN}"

SAY = Query(Shell(("say",)), str)


class Say(Check[str], words="toy say", example="lb1"):
    """Hear what a host has to say."""

    host: Host

    def read(self, ask: QueryRunner) -> str:
        return ask(self.host, SAY)

    def report(self, text: str) -> Report:
        return Report(text, healthy=False, findings=[text], table=Table((text,), ((text,),)))


class Echo(Change[str], words="toy echo", example="lb1 hello", undo="says nothing again"):
    """Have a host say something."""

    host: Host
    what: Annotated[str, Field(json_schema_extra={"lists": "words"})]

    def read(self, ask: QueryRunner) -> str:
        return ask(self.host, SAY)

    def plan(self, text: str) -> Plan:
        if f"said={self.what}" in text:
            return Plan(text)
        do, undo = Shell(("set", "said", self.what)), Shell(("set", "said", "nothing"))
        step = Step(f"{self.what}: {text}", self.host, do, undo, before=text, after=text)
        return Plan(text, [step], notes=[text])

    def report_progress(self, text: str) -> Report:
        return Report(text, healthy=False, findings=[text])


class Insist(Echo, words="toy insist", example="lb1 hello"):
    """Have a host say something that it never takes back."""

    def plan(self, text: str) -> Plan:
        step = replace(super().plan(text).steps[0], undo=NoUndo(text))
        return Plan(text, [step], notes=["x" * 7000] if self.what == "much" else [])


class Balk(Check[str], words="toy balk", example="lb1"):
    """Ask a host that will not."""

    host: Host

    def read(self, ask: QueryRunner) -> str:
        raise Refused(ask(self.host, SAY))

    def report(self, text: str) -> Report:
        return Report(text)


def _words(ask: QueryRunner, host: str, _arguments: Mapping[str, str]) -> list[str]:
    return [ask(host, SAY), LOUD[:70], "\u202eshort", "\x1b" * 30]


@asynccontextmanager
async def open_hostile_chat(directory: Path, patch: pytest.MonkeyPatch) -> AsyncGenerator[Chat]:
    offered = {**toy.RUNBOOKS, **{one.words: one for one in (Say, Echo, Insist, Balk)}}
    for known in (load_catalogue(), toy.RUNBOOKS):
        for words, one in offered.items():
            patch.setitem(cast("dict[str, Any]", known), words, one)
    patch.setitem(cast("dict[str, Any]", toy.LISTS), "words", _words)
    be_patient(patch)
    # On a busy machine our own Slack may take longer than people would wait.
    for patience in ("views._OPEN_TIMEOUT_SECONDS", "identity._TIMEOUT_SECONDS"):
        patch.setattr(f"bot.slack.{patience}", 30)
    with open_harness(directory) as harness:
        _poison(harness, patch)
        # Time flies, so that no channel has to be spared.
        clock = itertools.count(0.0, 5.0).__next__
        async with open_chat(
            harness, default_channel="C0ALARM", clock=clock, duties=[_list_begun_duties]
        ) as chat:
            chat.slack.channels |= {"C0ALARM", "C0WEB"}
            yield chat


def _list_begun_duties(*_: object) -> list[StartedDuty]:
    return [StartedDuty("olga", BRIEF, ["edge"], 1, 2)]


def _poison(harness: Harness, patch: pytest.MonkeyPatch) -> None:
    policy, fleet = harness.policies.path, harness.fleet
    yaml = YAML()
    for file, free in (("people", "name"), ("areas", "title")):
        kept: Any = yaml.load(policy / f"{file}.yaml")
        for name, one in kept[file].items():
            one[free] = f"{name} {LOUD}"[:120]
        if file == "areas":
            kept[file]["web"]["channel"] = "C0WEB"
        yaml.dump(kept, policy / f"{file}.yaml")
    now = datetime.now(UTC)
    moments = {"from": f"{now - timedelta(days=1):%Y-%m-%d %H:%M}"}
    moments |= {"until": f"{now + timedelta(days=9):%Y-%m-%d %H:%M}"}
    freezes = {"freezes": [{"name": LOUD[:120], "areas": ["storage"], **moments}]}
    yaml.dump(freezes, policy / "freezes.yaml")
    yaml.dump({"oncall": {"web": {"file": "web.ics", "areas": ["web"]}}}, policy / "oncall.yaml")
    titles = (" ".join(LOUD.split()),)
    facts = build_duties(web=Duty(unmatched=titles, unclear=titles, is_known=True))
    rules = policy / "policy.cedar"
    rules.write_text(
        f'{rules.read_text()}@id("loud")@description("{LOUD}")\n'
        'permit (principal, action == Action::"request", resource)\n'
        'when { context.runbook == "toy echo" };\n'
    )
    fleet.hosts |= {"web1": {"lamp": "off"}, "nas1": {"lamp": "off"}}
    for host in ("lb1", "lb2", "web1"):
        fleet.hosts[host] |= {"said": "nothing", "x": SAID}
    tell = fleet.run_command

    def loudly(host: str, command: Command, /, **more: Any) -> Answer:
        return replace(tell(host, command, **more), out=f"{SAID}\n" * 60)

    patch.setattr(fleet, "run_command", loudly)
    harness.policies = with_facts(harness.policies, harness.database, facts)


def forbid(harness: Harness, words: str) -> None:
    """Have the rules refuse a runbook, in words of theirs."""
    rules = harness.policies.path / "policy.cedar"
    rules.write_text(
        f'{rules.read_text()}@id("hush")@description("{LOUD}")\n'
        'forbid (principal, action == Action::"request", resource)\n'
        f'when {{ context.runbook == "{words}" }};\n'
    )
