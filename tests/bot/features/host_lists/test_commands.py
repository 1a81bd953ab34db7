"""`keyturn host-list …` against a real service, and the message to owners."""

import json
from pathlib import Path

import pytest

from bot.audit import change_log, events
from bot.audit.event_type import UnknownEvent
from bot.features.host_lists.actions import HostListActions
from bot.features.host_lists.changes import HostListFile
from bot.features.host_lists.chat import list_notices
from bot.slack.direct_notices import DirectNotices
from tests.bot.cli.test_runs import CliService
from tests.bot.features.host_lists.test_actions import STEP_UP_RULES, make_host
from tests.bot.harness import Harness
from tests.bot.slack.chat import Chat


def test_list_is_proposed_shown_confirmed_and_withdrawn(cli_service: CliService, tmp_path: Path):
    file = tmp_path / "hosts.json"
    file.write_text(json.dumps({"hosts": {"new1": make_host(area="edge", tags=["haproxy"])}}))
    assert cli_service.type("dora", "host-list", "list").stderr == "No lists of hosts.\n"
    proposed = json.loads(
        cli_service.type("dora", "host-list", "propose", str(file), "--json").stdout
    )
    number, digest = str(proposed["id"]), proposed["digest"]
    shown = cli_service.type("olga", "host-list", "show", number).stdout
    assert "+ new1" in shown
    assert proposed["changes"][0]["fingerprint"] in shown
    assert f"keyturn host-list confirm {number} {digest}" in shown
    refused = cli_service.type("dora", "host-list", "confirm", number, digest)
    assert refused.exit_code == 4
    confirmed = cli_service.type("olga", "host-list", "confirm", number, digest[:10])
    assert "confirmed by olga" in confirmed.stdout
    assert "open" not in cli_service.type("olga", "host-list", "list").stdout
    with cli_service.service.keyturn.database.transaction() as tx:
        damaged = UnknownEvent(kind=events.HostListConfirmed.kind, facts={"list": "x"})
        entry = change_log.append_entry(tx, damaged, person="olga").seq
    warned = cli_service.type("olga", "host-list", "list").stderr
    assert f"entry {entry} of the change log is about a list of hosts, and cannot be" in warned


def test_terminal_names_the_page_where_a_second_factor_is_required(
    cli_service: CliService, tmp_path: Path
):
    rules = cli_service.directory / "policy" / "policy.cedar"
    before = rules.read_text()
    rules.write_text(STEP_UP_RULES)
    try:
        file = tmp_path / "hosts.json"
        file.write_text(json.dumps({"hosts": {"new2": make_host(area="edge")}}))
        typed = cli_service.type("dora", "host-list", "propose", str(file), "--json")
        proposed = json.loads(typed.stdout)
        number, digest = str(proposed["id"]), proposed["digest"]
        shown = cli_service.type("olga", "host-list", "show", number).stdout
        assert f"To confirm it, with your second factor: its page, /host-lists/{number}" in shown
        refused = cli_service.type("olga", "host-list", "confirm", number, digest)
        assert (refused.exit_code, refused.stdout) == (4, "")
        assert f"confirm it on its page, /host-lists/{number}" in refused.stderr
    finally:
        rules.write_text(before)


def test_wrong_file_says_what_is_wrong(cli_service: CliService, tmp_path: Path):
    file = tmp_path / "hosts.yaml"
    for text, says in (
        ("hosts: [", "bracket"),
        ("hosts: {new1: {bmc: {}}}", "bmc"),
        ("hosts: {'new 1': {address: a}}", "new 1"),
    ):
        file.write_text(text)
        result = cli_service.type("dora", "host-list", "propose", str(file))
        assert result.exit_code in {1, 2}
        assert says in result.stderr
        assert "Traceback" not in result.stderr


def test_owners_who_can_confirm_it_get_a_notice(harness: Harness):
    listed = HostListFile.model_validate({"hosts": {"new1": make_host(area="edge")}})
    proposed = harness.service.bind(HostListActions).propose(listed, person="olga")
    with harness.database.reading() as tx:
        notices = list_notices(tx, harness.policies.get_policy())
    assert [one.person for one in notices] == ["adam"]
    with harness.database.transaction() as tx:
        build = notices[0].read(tx)
    message = json.dumps(build("https://keyturn.example").blocks)
    assert f"https://keyturn.example/host-lists/{proposed.number}" in message
    assert "Olga Owner proposes a list of hosts of the edge: 1 added." in message


@pytest.mark.anyio
async def test_notice_is_sent_once(chat: Chat):
    listed = HostListFile.model_validate({"hosts": {"new1": make_host(area="edge")}})
    chat.harness.service.bind(HostListActions).propose(listed, person="dora")
    notices: DirectNotices = chat.door.direct_notices
    await notices.send_due()
    await notices.send_due()
    sent = [one.text for one in chat.slack.posted if "proposes a list of hosts" in one.text]
    assert len(sent) == 2
