"""Entries for inventory.yaml: imported fields are valid, and missing ones are noted."""

import pytest
from ruamel.yaml import YAML

from bot.hosts import inventory_writer, known_hosts
from bot.hosts.imported_host import ImportedHost
from connectors.inventory import Inventory
from tests.playground.keys import make_key

KEY = make_key().public
KNOWN = known_hosts.parse_known_hosts(f"* {KEY}\n[*]:2222 {KEY}\n")
WHOLE = ImportedHost(
    name="web1",
    address="192.0.2.1",
    port=2222,
    user="ops",
    key="/etc/keyturn/web",
    jump="192.0.2.9",
    groups=frozenset({"Web_Servers", "blue"}),
)
JUMP = ImportedHost("gate", "192.0.2.9")
HOSTILE = (
    *("", "-", "a b", "../../etc/passwd", "x\ny: {}", "'", '"', "# no", "&a", "*a", "!vault"),
    *("[a]", "{a: b}", "no", "1e3", "~", "\x1b[2J", "\u202egnp", "a" * 300, "{{ x }}", "$(id)"),
)


def test_complete_imported_hosts_are_valid_inventory_entries():
    made = inventory_writer.build_entries([JUMP, WHOLE], KNOWN, area="web")
    assert [each.is_complete for each in made] == [True, True]
    assert [each.notes for each in made] == [(), ()]
    inventory = Inventory.model_validate(
        YAML(typ="safe").load(inventory_writer.render_entries(made))
    )
    host = inventory["web1"]
    assert (host.address, host.port, host.user, host.jump) == ("192.0.2.1", 2222, "ops", "gate")
    assert (host.host_key, host.tags) == (KEY, {"web-servers", "blue"})
    assert str(host.key) == "/etc/keyturn/web"


def test_missing_fields_are_comments_above_the_imported_host():
    (lacking,) = inventory_writer.build_entries(
        [ImportedHost("web1", "192.0.2.1", jump="gate", key="~/.ssh/id")], ()
    )
    assert not lacking.is_complete
    assert [note.split(":")[0] for note in lacking.notes] == ["key", "host_key", "jump", "area"]
    written = inventory_writer.render_entries([lacking])
    assert written.startswith("hosts:\n  # key: ~/.ssh/id is a personal key")
    assert YAML(typ="safe").load(written) == {"hosts": {"web1": {"address": "192.0.2.1"}}}


def test_enrol_command_in_a_note_is_quoted_for_the_shell():
    (made,) = inventory_writer.build_entries([ImportedHost("web1", "x; reboot", port=2222)], ())
    assert "`keyturn inventory enrol web1 'x; reboot' --port 2222`" in made.notes[0]


def test_enrol_command_of_a_network_device_names_its_platform():
    (made,) = inventory_writer.build_entries(
        [ImportedHost("sw1", "192.0.2.1", platform="cisco_ios")], ()
    )
    assert "`keyturn inventory enrol sw1 192.0.2.1 --platform cisco_ios`" in made.notes[0]


def test_imported_hosts_with_the_same_name_are_numbered():
    imported = [
        ImportedHost(name, "192.0.2.1") for name in ("Web_1", "web-1", "web.1", "web-1-2", "!")
    ]
    names = [each.name for each in inventory_writer.build_entries(imported, KNOWN, area="web")]
    assert len(set(names)) == 5
    assert names[0] == "web-1"
    assert names[4] == "host"


@pytest.mark.parametrize("word", HOSTILE)
def test_hostile_names_of_imported_hosts_add_no_other_entries(word: str):
    imported = [
        ImportedHost(word, "192.0.2.1"),
        ImportedHost(
            "a", word, user=word, key=f"/{word}", groups=frozenset({word}), notes=(word,)
        ),
        ImportedHost("b", "192.0.2.2", platform=word, jump=word),
    ]
    made = inventory_writer.build_entries(imported, KNOWN, area="web")
    written = inventory_writer.render_entries(made)
    assert "\x1b" not in written
    assert "\u202e" not in written
    read = YAML(typ="safe").load(written)["hosts"]
    assert list(read) == [each.name for each in made]
    whole = {each.name: read[each.name] for each in made if each.is_complete}
    assert set(Inventory.model_validate({"hosts": whole}).hosts) == set(whole)
