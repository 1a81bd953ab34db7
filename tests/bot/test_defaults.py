"""Every runbook runs without its optional words."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field, ValidationError

from bot.execution.planner import load_runbook
from bot.model import request_form
from bot.model.run import RequestTerms, Run
from bot.service import KeyturnService
from connectors.command import Query, QueryRunner
from connectors.errors import CommandError
from connectors.inventory import Inventory
from runbooks import AnyRunbook, Check, Host, Report, load_catalogue
from tests.bot.harness import WEB, Harness, open_harness
from tests.policies import HOST_KEY
from tests.runbooks.network import recorded
from tests.scripted_fleet import ScriptedFleet

_HERE = "the host was asked"


class ReadOnce(ScriptedFleet):
    """A fleet whose hosts answer what is scripted, and fail with known words at the rest."""

    def run_query(self, host: str, query: Query[Any]) -> Any:
        try:
            return super().run_query(host, query)
        except AssertionError:
            raise CommandError(_HERE) from None


def required_words(runbook: type[AnyRunbook]) -> list[str]:
    """Return the words of a request with every optional word left out, from the example."""
    example = request_form.parse_request(runbook, request_form.split_words(runbook.example))
    values = example.model_dump(mode="json")
    return [
        str(values[name]) for name, field in runbook.model_fields.items() if field.is_required()
    ]


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    with open_harness(tmp_path) as harness:
        yield harness


def run_request(harness: Harness, words: str, typed: list[str], answers: Any = None) -> Run:
    """Request a runbook and let the service carry it out on a fleet of one host."""
    runbook = request_form.parse_request(load_catalogue()[words], typed)
    extra: Any = load_catalogue()[words].model_fields["host"].json_schema_extra
    platform = {"switch": "cisco_ios", "router": "cisco_ios", "pdu": "snmp"}.get(
        extra.get("tag", ""), "linux"
    )
    tags = [extra["tag"]] if "tag" in extra else []
    host = {"address": "127.0.0.1", "user": "keyturn", "host_key": HOST_KEY, "area": "web"}
    entry: dict[str, Any] = {**host, "tags": tags, "platform": platform}
    if tags == ["bmc"]:
        entry["bmc"] = {"address": "192.0.2.1", "user": "u", "password_file": "p", "ca": "ca.pem"}
    if tags == ["msa"]:
        del entry["host_key"]
        entry["platform"] = "hp_msa"
        entry["msa"] = {"user": "u", "password_file": "p", "ca": "ca.pem"}
    if platform == "snmp":
        del entry["host_key"]
        entry["snmp"] = {"community_file": "keys/community"}
    inventory = {"hosts": {runbook.target: entry}}
    (harness.policies.path / "inventory.yaml").write_text(json.dumps(inventory))
    fleet = ReadOnce(answers, inventory=Inventory.model_validate(inventory))
    harness.context = replace(harness.context, fleet=fleet, runbooks=load_catalogue())
    harness.service = KeyturnService(harness.context)
    run = harness.service.request_run(runbook, RequestTerms("olga", WEB))
    assert load_runbook(harness.context, run) == runbook
    harness.run_queued_work()
    return harness.get_run(run.id)


# A drill asks the host only for its probation, and so does every change that has one.
@pytest.mark.parametrize(
    "words", sorted(load_catalogue().keys() - {"probation drill", "signers update"})
)
def test_every_runbook_queries_its_host_when_optional_words_are_left_out(
    harness: Harness, words: str
):
    run = run_request(harness, words, required_words(load_catalogue()[words]))
    assert _HERE in run.summary


def test_switch_lag_without_a_name_shows_every_aggregation(harness: Harness):
    answers = {("sw1", "show etherchannel summary"): recorded("cisco-etherchannel")}
    run = run_request(harness, "switch lag", ["sw1"], answers)
    assert "sw1 has 4 of 6 link aggregations healthy" in run.summary


def test_hsrp_check_without_a_second_router_judges_the_first(harness: Harness):
    answers = {
        ("r1", "show standby"): "",
        ("r1", "show vrrp brief"): "",
    }
    run = run_request(harness, "hsrp check", ["r1"], answers)
    assert "No HSRP or VRRP group on r1" in run.summary


def test_runbook_default_that_does_not_match_its_field_is_rejected():
    class Odd(Check[str], words="", example=""):
        """See nothing."""

        host: Host
        name: str = Field(default="", pattern="^[a-z]+$")

        def read(self, ask: QueryRunner) -> str:
            raise NotImplementedError

        def report(self, state: str) -> Report:
            raise NotImplementedError

    with pytest.raises(ValidationError, match="name"):
        Odd.model_validate({"host": "web1"})
