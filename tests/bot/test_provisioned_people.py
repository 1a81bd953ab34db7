"""What an identity provider says of people, and features that depend on who they are."""

from collections.abc import Generator
from pathlib import Path

import httpx2
import pytest

from bot.features.oncall.duties import list_people_of_shift
from bot.features.oncall.reader import CalendarReader
from bot.features.oncall.shift import Shift
from bot.features.schedules import rows as schedules
from bot.model.run import RequestTerms, State
from bot.model.schedule import ScheduleTiming, parse_cron
from bot.model.times import DAY
from tests.bot.features.oncall.test_reader import build_calendar
from tests.bot.features.schedules.due import fire_due_schedules, make_due_now
from tests.bot.features.scim.accounts import Provider, add_provisioning, bind
from tests.bot.features.scim.test_doors import add_account, open_provider, serve
from tests.bot.harness import WEB, Harness, open_harness
from tests.toy import SetSwitch


@pytest.fixture
def company(tmp_path: Path) -> Generator[Harness]:
    with open_harness(tmp_path) as harness:
        add_provisioning(tmp_path / "policy")
        yield harness


@pytest.fixture
def provider(company: Harness) -> Provider:
    return Provider(company)


def test_the_address_of_a_provisioned_person_gives_no_duty(
    company: Harness, provider: Provider
) -> None:
    """A provider could give an account any address that a calendar names."""
    ines = provider.add("ines@example.com")
    policy = company.policies.get_policy()
    assert policy.find_person(ines.person)
    shift = Shift(
        starts_at=0,
        ends_at=DAY,
        title="Night",
        addresses=["ines@example.com", "dora@example.com"],
    )
    assert list_people_of_shift(shift, policy) == ["dora"]


def test_a_calendar_puts_an_account_on_duty_only_while_people_yaml_has_the_person(
    company: Harness, provider: Provider, tmp_path: Path
) -> None:
    """With the file of a calendar, at each step: provisioned, confirmed by a person, and gone."""
    directory = tmp_path / "policy"
    (directory / "oncall.yaml").write_text("oncall:\n  edge: {file: edge.ics, areas: [edge]}\n")
    (directory / "edge.ics").write_bytes(build_calendar("ines@example.com"))
    account = provider.add("ines@example.com")
    CalendarReader(company.policies, company.database, directory).read_due_calendars()

    def list_on_duty() -> frozenset[str]:
        return company.policies.get_policy().list_on_duty("edge")

    assert company.policies.get_policy().duties["edge"].unmatched == ("Edge",)
    assert list_on_duty() == frozenset()
    people = directory / "people.yaml"
    entry = f"  ines: {{name: Ines, email: ines@example.com, provisioned: {account.user_id}}}\n"
    people.write_text(people.read_text().replace("people:\n", f"people:\n{entry}"))
    assert list_on_duty() == {"ines"}
    provider.delete(account)
    assert list_on_duty() == frozenset()


@pytest.mark.parametrize("removed", ["dora", "olga"], ids=["its owner", "its approver"])
def test_a_schedule_of_a_person_who_was_removed_is_refused_when_it_is_due(
    company: Harness, provider: Provider, tmp_path: Path, removed: str
) -> None:
    account = provider.add(f"{removed}@example.com")
    bind(tmp_path / "policy", removed, account.user_id)
    lamp = SetSwitch(host="lb1", name="lamp", value="on")
    timing = ScheduleTiming("hourly", parse_cron("0 * * * *", "Europe/Amsterdam"))
    run = company.service.request_on_hosts(
        [lamp], RequestTerms("dora", WEB, timing=timing), host_pattern=""
    )
    company.run_queued_work()
    company.approve(company.get_run(run.id))
    provider.delete(account)
    with company.database.reading() as tx:
        schedule = schedules.list_schedules(tx)[0]
    make_due_now(company, schedule)
    fire_due_schedules(company)
    company.run_queued_work()
    with company.database.reading() as tx:
        fires = schedules.list_fires(tx, schedule.id)
    fired = [company.get_run(one.run) for one in fires if one.run is not None]
    assert [one.state for one in fired] == [State.REFUSED]
    assert company.fleet.sent == []


@pytest.mark.real
def test_an_agent_of_a_removed_person_is_out(tmp_path: Path) -> None:
    with serve(tmp_path) as service, open_provider(service) as scim:
        account = add_account(service, scim, tmp_path / "policy", "dora")
        agents = service.keyturn.service.agents
        agents.add_agent("triage", owner="dora", purpose="reads alerts", days=1, person="adam")
        agents.confirm_agent("triage", person="olga")
        _, secret = agents.create_token("triage", behalf="", days=1)
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        headers = {
            "Authorization": f"Bearer {secret}",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2025-06-18",
        }

        def call() -> int:
            return httpx2.post(
                f"{service.address}/mcp", json=body, headers=headers, timeout=60
            ).status_code

        assert call() == 200
        assert scim.delete(f"/Users/{account}").status_code == 204
        assert call() == 401
