"""Lists of hosts: who proposes and confirms them, what they change, and when they are refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.audit import change_log, events
from bot.audit.change_log import LogAlteredError
from bot.features.host_lists import writing
from bot.features.host_lists.actions import HostListActions
from bot.features.host_lists.changes import HostListFile
from bot.features.host_lists.state import HostList, NoSuchHostListError, get_list
from bot.features.host_lists.writing import NotWrittenError, write_confirmed_lists, write_list
from bot.model.errors import InvalidRequestError, NotAllowed, StepUpRequired, TooLate
from bot.policy import NoPolicyError
from tests.bot.authenticator_app import enrol_and_step_up, enrol_app
from tests.bot.harness import Harness, open_harness
from tests.bot.rewritten_log import forge_entries
from tests.playground.keys import make_key
from tests.policies import get_starter_rules


def propose(
    harness: Harness,
    hosts: Mapping[str, Any] | None = None,
    *,
    remove: tuple[str, ...] = (),
    person: str = "dora",
) -> HostList:
    listed = HostListFile.model_validate({"hosts": hosts or {}, "remove": remove})
    return actions(harness).propose(listed, person=person)


def actions(harness: Harness) -> HostListActions:
    return harness.service.bind(HostListActions)


def make_host(n: int = 1, area: str = "web", **fields: Any) -> dict[str, Any]:
    return {
        "address": f"192.0.2.{n}",
        "host_key": make_key().public,
        "area": area,
        "tags": ["nginx"],
        **fields,
    }


def confirm(
    harness: Harness, one: HostList, person: str = "olga", *, session: str = ""
) -> HostList:
    return actions(harness).confirm(one.number, person=person, digest=one.digest, session=session)


def write(harness: Harness) -> Mapping[int, str]:
    return write_confirmed_lists(harness.database, harness.policies, harness.policies.path)


def test_one_confirmation_of_a_second_person_adds_every_host_of_a_list(harness: Harness):
    hosts = {f"new{n}": make_host(n) for n in range(1, 31)}
    proposed = propose(harness, hosts)
    assert (proposed.state, proposed.summary, proposed.missing) == ("open", "30 added", 1)
    assert confirm(harness, proposed).state == "confirmed"
    assert write(harness) == {}
    inventory = harness.policies.get_policy().inventory
    assert {name: inventory[name].host_key for name in hosts} == {
        name: one["host_key"] for name, one in hosts.items()
    }
    assert inventory["new7"].area == "web"
    text = (harness.policies.path / "inventory.yaml").read_text()
    assert f"# list {proposed.number} of hosts, confirmed by dora and olga" in text
    kinds = [kind for kind in harness.list_entry_kinds() if kind.startswith("host list")]
    assert kinds == ["host list proposed", "host list confirmed", "host list written"]


def test_log_holds_exactly_the_list_that_was_confirmed(harness: Harness):
    one = make_host()
    proposed = propose(harness, {"new1": one})
    confirm(harness, proposed)
    with harness.database.reading() as tx:
        entries = change_log.list_entries_after(tx, 0)
    event = next(one.event for one in entries if one.kind == "host list proposed")
    assert isinstance(event, events.HostListProposed)
    assert (event.before, event.after) == ({}, {"new1": one})
    last = entries[-1]
    assert (last.person, last.event) == (
        "olga",
        events.HostListConfirmed(list=proposed.number, digest=proposed.digest),
    )


def test_list_changes_and_removes_hosts_and_leaves_everything_else(harness: Harness):
    file = harness.policies.path / "inventory.yaml"
    file.write_text(file.read_text() + "# the end\n")
    changed = {"web1": {"address": "192.0.2.80", "tags": ["nginx", "tls"]}}
    proposed = propose(harness, changed, remove=("lb2",), person="olga")
    assert proposed.areas == ("edge", "web")
    assert [(one.name, one.action) for one in proposed.changes] == [
        ("lb2", "remove"),
        ("web1", "change"),
    ]
    assert list(proposed.changes[1].lines) == [
        "address: 127.0.0.1 → 192.0.2.80",
        "tags: nginx → nginx, tls",
    ]
    # adam owns the edge, but not the web servers.
    with pytest.raises(NotAllowed, match="the web servers"):
        confirm(harness, proposed, "adam")
    give_owner(harness, "web", "adam")
    confirm(harness, proposed, "adam")
    assert write(harness) == {}
    inventory = harness.policies.get_policy().inventory
    assert "lb2" not in inventory.hosts
    assert inventory["web1"].address == "192.0.2.80"
    assert inventory["web1"].host_key == inventory["lb1"].host_key
    assert "# the end" in file.read_text()


def give_owner(harness: Harness, area: str, person: str) -> None:
    file = harness.policies.path / "areas.yaml"
    old, new = f"  {area}: {{title: the web servers, owners: [olga", f", {person}"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, old + new))


def test_person_who_proposed_a_list_does_not_confirm_it(harness: Harness):
    proposed = propose(harness, {"new1": make_host()}, person="olga")
    with pytest.raises(NotAllowed, match="another person"):
        confirm(harness, proposed, "olga")
    assert write(harness) == {}
    assert "new1" not in harness.policies.get_policy().inventory.hosts


def test_only_owners_of_every_area_confirm(harness: Harness):
    proposed = propose(harness, {"a": make_host(1, "edge"), "b": make_host(2, "storage")})
    # olga may view everything, so she sees it; she does not own storage.
    with pytest.raises(NotAllowed, match="you do not own storage"):
        confirm(harness, proposed, "olga")
    assert "host list refused" in harness.list_entry_kinds()


def test_moving_a_host_concerns_both_areas(harness: Harness):
    proposed = propose(harness, {"web1": {"area": "edge"}})
    assert proposed.areas == ("edge", "web")
    with pytest.raises(NotAllowed, match="the web servers"):
        confirm(harness, proposed, "adam")


def test_list_that_was_not_read_is_not_confirmed(harness: Harness):
    first = propose(harness, {"new1": make_host()})
    other = propose(harness, {"new1": make_host()})
    for digest in ("", "0" * 64, other.digest, first.digest[:9]):
        with pytest.raises(TooLate, match="not the one that you read"):
            actions(harness).confirm(first.number, person="olga", digest=digest)
    assert get_state(harness, first) == "open"
    shortened = actions(harness).confirm(
        first.number, person="olga", digest=first.digest[:10].upper()
    )
    assert shortened.state == "confirmed"


def get_state(harness: Harness, one: HostList) -> str:
    with harness.database.reading() as tx:
        return get_list(tx, one.number).state


def test_list_is_shown_again_when_the_inventory_changed_since(harness: Harness):
    proposed = propose(harness, {"web1": {"address": "192.0.2.80"}})
    edit(harness, "web1: {area: web,", "web1: {area: web, address: 192.0.2.1,")
    with pytest.raises(TooLate, match="web1 changed in the inventory"):
        confirm(harness, proposed)


def test_owner_of_the_former_area_does_not_change_a_host_that_left_it(harness: Harness):
    """The list says nothing of the area, so only the inventory shows that it is another one."""
    proposed = propose(harness, {"web1": {"tags": ["nginx", "tls"]}})
    waiting = propose(harness, {"web1": {"user": "other"}})
    confirm(harness, waiting)
    edit(harness, "web1: {area: web,", "web1: {area: storage,")
    with pytest.raises(TooLate, match="web1 changed in the inventory"):
        confirm(harness, proposed)
    assert "web1 changed in inventory.yaml" in write(harness)[waiting.number]
    assert harness.policies.get_policy().inventory["web1"].user == "keyturn"


def test_change_by_hand_while_a_list_is_written_is_not_lost(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    proposed = propose(harness, {"new1": make_host()})
    confirm(harness, proposed)
    file = harness.policies.path / "inventory.yaml"
    edit_text = writing.edit_text

    def edit_while_a_person_does(text: str, one: HostList) -> str:
        file.write_text(text + "# by hand\n")
        return edit_text(text, one)

    with monkeypatch.context() as patched:
        patched.setattr(writing, "edit_text", edit_while_a_person_does)
        assert "changed while" in write(harness)[proposed.number]
    assert file.read_text().endswith("# by hand\n")
    assert write(harness) == {}
    assert "# by hand" in file.read_text()
    assert "new1" in harness.policies.get_policy().inventory.hosts


def test_confirmed_list_is_not_written_over_a_later_change(harness: Harness):
    proposed = propose(harness, {"web1": {"address": "192.0.2.80"}, "new1": make_host()})
    confirm(harness, proposed)
    edit(harness, "web1: {area: web,", "web1: {area: web, address: 192.0.2.1,")
    before = (harness.policies.path / "inventory.yaml").read_text()
    problems = write(harness)
    assert "web1 changed in inventory.yaml" in problems[proposed.number]
    assert (harness.policies.path / "inventory.yaml").read_text() == before
    assert actions(harness).withdraw(proposed.number, person="olga", reason="").state == (
        "withdrawn"
    )
    assert write(harness) == {}


def edit(harness: Harness, old: str, new: str) -> None:
    file = harness.policies.path / "inventory.yaml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def test_written_list_is_not_written_again_after_a_person_removed_its_host(harness: Harness):
    proposed = propose(harness, {"new1": make_host()})
    confirm(harness, proposed)
    before = (harness.policies.path / "inventory.yaml").read_text()
    write(harness)
    (harness.policies.path / "inventory.yaml").write_text(before)
    assert write(harness) == {}
    assert (harness.policies.path / "inventory.yaml").read_text() == before


def test_list_that_is_in_the_file_already_is_only_recorded(harness: Harness):
    """As after a crash between the file and the log, or where a repository was faster."""
    proposed = propose(harness, {"new1": make_host()})
    confirm(harness, proposed)
    file = harness.policies.path / "inventory.yaml"
    with harness.database.reading() as tx:
        text = writing.edit_text(file.read_text(), get_list(tx, proposed.number))
    file.write_text(text)
    assert write(harness) == {}
    assert file.read_text() == text
    assert get_state(harness, proposed) == "written"


def test_list_is_not_written_when_its_owner_is_none_any_more(harness: Harness):
    proposed = propose(harness, {"new1": make_host()})
    confirm(harness, proposed)
    file = harness.policies.path / "areas.yaml"
    file.write_text(
        file.read_text().replace("the web servers, owners: [olga]", "web, owners: [stan]")
    )
    assert "confirmed by olga, who is not an owner" in write(harness)[proposed.number]
    assert "new1" not in harness.policies.get_policy().inventory.hosts


STEP_UP_RULES = get_starter_rules().replace('@approvals("1")', '@approvals("1")\n@stepup', 1)


def test_person_who_has_a_second_factor_confirms_with_it(harness: Harness):
    app = enrol_app(harness, "olga")
    proposed = propose(harness, {"new1": make_host()})
    with pytest.raises(StepUpRequired, match=f"/host-lists/{proposed.number}"):
        confirm(harness, proposed)
    with pytest.raises(StepUpRequired):
        confirm(harness, proposed, session=app.session)
    assert write(harness) == {}
    assert "new1" not in harness.policies.get_policy().inventory.hosts
    app.step_up()
    assert confirm(harness, proposed, session=app.session).state == "confirmed"
    with harness.database.reading() as tx:
        event = change_log.list_entries_after(tx, 0)[-1].event
    assert isinstance(event, events.HostListConfirmed)
    assert event.factor == app.factor.digest
    assert write(harness) == {}
    assert "new1" in harness.policies.get_policy().inventory.hosts


def test_everyone_confirms_with_a_second_factor_where_a_rule_requires_one(tmp_path: Path):
    with open_harness(tmp_path, rules=STEP_UP_RULES) as harness:
        proposed = propose(harness, {"new1": make_host()})
        with pytest.raises(StepUpRequired):
            confirm(harness, proposed)
        app = enrol_and_step_up(harness, "olga")
        confirm(harness, proposed, session=app.session)
        assert write(harness) == {}
        assert "new1" in harness.policies.get_policy().inventory.hosts


def test_factor_that_no_one_vouched_for_confirms_no_list(tmp_path: Path):
    """A thief of the chat account could have enrolled it."""
    with open_harness(tmp_path, rules=STEP_UP_RULES) as harness:
        app = enrol_app(harness, "olga", confirmed_by="")
        proposed = propose(harness, {"new1": make_host()})
        with pytest.raises(NotAllowed):
            app.step_up()
        with pytest.raises(StepUpRequired):
            confirm(harness, proposed, session=app.session)


def test_list_is_not_written_once_its_factor_is_removed(harness: Harness):
    app = enrol_and_step_up(harness, "olga")
    proposed = propose(harness, {"new1": make_host()})
    confirm(harness, proposed, session=app.session)
    app.lose()
    assert "without a second factor that is valid now" in write(harness)[proposed.number]
    assert "new1" not in harness.policies.get_policy().inventory.hosts


def test_forged_entry_confirms_no_list(harness: Harness):
    """A thief of the database, without the key of the log, adds a confirmation."""
    proposed = propose(harness, {"new1": make_host()})
    event = events.HostListConfirmed(list=proposed.number, digest=proposed.digest)
    with harness.database.transaction() as tx:
        forge_entries(tx, change_log.EntryDraft(event, person="olga"))
    with pytest.raises(LogAlteredError):
        write(harness)
    assert "new1" not in harness.policies.get_policy().inventory.hosts


@pytest.mark.parametrize(
    ("hosts", "says"),
    [
        ({"new1": {"address": "192.0.2.1", "area": "web"}}, "host_key or host_ca"),
        ({"new1": make_host(area="nowhere")}, "area nowhere is not in areas.yaml"),
        ({"new1": make_host(address="192.0.2.1 -oProxyCommand=x")}, "address"),
        ({"new1": make_host(user="ROOT;x")}, "user"),
        ({"new1": make_host(tags=["a b"])}, "tags"),
        ({"new1": make_host(host_key="ssh-ed25519 AAAA")}, "host_key"),
        ({"new1": make_host(jump="nowhere")}, "jump nowhere is not in the inventory"),
        ({"new1": make_host(source="netbox")}, "only a source"),
        ({"web1": {"address": "127.0.0.1"}}, "nothing would change"),
        ({}, "nothing would change"),
    ],
)
def test_list_that_makes_no_inventory_is_refused(
    harness: Harness, hosts: Mapping[str, Any], says: str
):
    with pytest.raises(InvalidRequestError) as refused:
        propose(harness, hosts)
    assert says in str(refused.value)
    assert "host list proposed" not in harness.list_entry_kinds()


def test_two_hosts_with_one_key_are_refused(harness: Harness):
    one = make_host()
    with pytest.raises(InvalidRequestError, match="same host key"):
        propose(harness, {"new1": one, "new2": {**one, "address": "192.0.2.9"}})
    known = harness.policies.get_policy().inventory["lb1"].host_key
    with pytest.raises(InvalidRequestError, match="lb1 and new1 have the same host key"):
        propose(harness, {"new1": make_host(host_key=known)})


def test_machine_of_one_area_is_not_listed_again_in_another(harness: Harness):
    """Keys of one CA do not tell two names of one machine apart."""
    edit(harness, "  host_key: ", "  host_ca: ")
    known = harness.policies.get_policy().inventory["lb1"]
    mine = {"address": known.address, "host_ca": known.host_ca, "area": "web"}
    with pytest.raises(InvalidRequestError, match="lb1 and mine have the same address and port"):
        propose(harness, {"mine": mine})


def test_host_of_the_redundant_group_is_not_removed(harness: Harness):
    file = harness.policies.path / "inventory.yaml"
    file.write_text(f"{file.read_text()}redundant: [lb1, lb2]\n")
    with pytest.raises(InvalidRequestError, match="lb2 is not in the inventory"):
        propose(harness, remove=("lb2",))


@pytest.mark.parametrize("name", ["new 1", "New1", "../x", "-x", "a" * 64, "x\n"])
def test_hostile_names_are_refused(name: str):
    with pytest.raises(ValueError, match="pattern"):
        HostListFile.model_validate({"hosts": {name: make_host()}})


def test_list_is_shown_to_those_whom_it_concerns(harness: Harness):
    """adam is no administrator here: owners see all that the starter's rules let them view."""
    rules = harness.policies.path / "policy.cedar"
    rules.write_text(
        rules.read_text() + '@id("hide")\nforbid (principal, action == Action::"view", resource)\n'
        'when { principal != Person::"stan" };\n'
    )
    proposed = propose(harness, {"new1": make_host()})
    find = actions(harness).get_viewable
    assert find(proposed.number, "dora").digest == proposed.digest
    assert find(proposed.number, "olga").digest == proposed.digest
    with pytest.raises(NoSuchHostListError):
        find(proposed.number, "adam")
    assert actions(harness).list_viewable("adam") == []
    with pytest.raises(NoSuchHostListError):
        actions(harness).confirm(proposed.number, person="adam", digest=proposed.digest)
    with pytest.raises(NoSuchHostListError):
        actions(harness).withdraw(proposed.number, person="adam", reason="")


def test_same_list_is_proposed_once(harness: Harness):
    one = {"new1": make_host()}
    assert propose(harness, one).number == propose(harness, one).number


def test_withdrawn_list_is_not_confirmed(harness: Harness):
    proposed = propose(harness, {"new1": make_host()})
    ended = actions(harness).withdraw(proposed.number, person="dora", reason="a mistake")
    assert (ended.state, ended.reason) == ("withdrawn", "a mistake")
    with pytest.raises(TooLate, match="withdrawn already"):
        confirm(harness, proposed)


def test_directory_that_cannot_be_written_leaves_the_list_for_the_command(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
):
    proposed = propose(harness, {"new1": make_host()})
    confirm(harness, proposed)

    def refuse(directory: Path, text: str) -> None:
        raise PermissionError(13, "Permission denied", str(directory / text[:1]))

    with monkeypatch.context() as patched:
        patched.setattr(writing, "write_inventory", refuse)
        assert f"keyturn host-list write {proposed.number}" in write(harness)[proposed.number]
    database, directory = harness.database, harness.policies.path
    assert write_list(database, harness.policies, directory, proposed.number).state == "written"


def test_unconfirmed_list_is_not_written_by_the_command(harness: Harness):
    proposed = propose(harness, {"new1": make_host()})
    with pytest.raises(NotWrittenError, match="two people"):
        write_list(harness.database, harness.policies, harness.policies.path, proposed.number)


def test_inventory_in_which_hosts_share_lines_is_not_guessed_at(harness: Harness):
    file = harness.policies.path / "inventory.yaml"
    file.write_text(
        file.read_text().replace("web1: {area", "web1: &web {area").rstrip() + "\n  web2: *web\n"
    )
    proposed = propose(harness, {"web1": {"address": "192.0.2.80"}})
    confirm(harness, proposed)
    assert "share lines" in write(harness)[proposed.number]


def test_invalid_policy_is_an_error_and_no_empty_inventory(harness: Harness):
    (harness.policies.path / "inventory.yaml").write_text("hosts: [")
    with pytest.raises(NoPolicyError):
        propose(harness, {"new1": make_host()})
