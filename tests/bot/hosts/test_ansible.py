"""Ansible inventories: what its own program makes of one, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from bot.hosts import ansible, inventory_writer
from bot.hosts.imported_host import ImportedHost, NotUnderstood
from tests.typed import keyturn_at

ANSWERS = Path(__file__).parent / "answers"
INI = (ANSWERS / "ansible.ini").read_text()
# Recorded: ansible-inventory [core 2.19.14] -i ansible.ini --list --yaml
YAML_OF_IT = (ANSWERS / "ansible-inventory.yaml").read_text()


def _hosts(text: str) -> dict[str, ImportedHost]:
    return {host.name: host for host in ansible.parse_inventory(text).hosts}


def _written(text: str) -> dict[str, dict[str, Any]]:
    made = inventory_writer.entries_to_yaml(
        inventory_writer.build_entries(ansible.parse_inventory(text).hosts, ())
    )
    return YAML(typ="safe").load(made)["hosts"]


def test_an_ini_file_means_what_ansible_makes_of_it():
    assert _written(INI) == _written(YAML_OF_IT)
    assert len(_written(INI)) == 15


def test_ranges_ports_users_jumps_and_groups_are_taken_over():
    hosts = _hosts(INI)
    assert hosts["web02.example.com"] == ImportedHost(
        name="web02.example.com",
        address="web02.example.com",
        port=2222,
        user="deploy",
        key="/etc/keyturn/web",
        groups=frozenset({"web", "prod"}),
    )
    assert {"weba.example.com", "webc.example.com", "www1", "www5", "www9"} <= hosts.keys()
    assert (hosts["db1"].address, hosts["db1"].jump) == ("10.0.0.9", "bastion")
    assert hosts["db2"].jump == "bastion"
    assert hosts["sw1"].platform == "cisco_ios"
    assert hosts["sw1"].groups == {"edge", "everything", "prod"}
    assert (hosts["2001:db8::7"].port, hosts["2001:db8::7"].user) == (2222, "six")


def test_a_nearer_group_counts_before_a_farther_one():
    hosts = _hosts(INI)
    assert hosts["sw1"].user == "edgy"
    assert hosts["db1"].user == "ops"
    assert hosts["mail.example.com"].user == "everybody"


def test_what_only_ansible_can_work_out_is_told_and_left_out():
    bastion = _hosts(INI)["bastion"]
    assert bastion.user == ""
    assert bastion.notes == ("ansible_user: Ansible works it out itself: write what it becomes",)


def test_a_vault_is_told_and_left_out():
    text = "all:\n  hosts:\n    db1:\n      ansible_user: !vault |\n        $ANSIBLE_VAULT;1.1\n"
    (host,) = ansible.parse_inventory(text).hosts
    assert (host.user, len(host.notes)) == ("", 1)


def test_hosts_that_ssh_does_not_reach_are_told():
    assert ansible.parse_inventory(INI).remarks == (
        "localhost is left out: Ansible reaches it by local, not SSH",
    )


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("web1", ["web1"]),
        ("w[1:3]", ["w1", "w2", "w3"]),
        ("w[08:10]", ["w08", "w09", "w10"]),
        ("[a:b][1:2]", ["a1", "a2", "b1", "b2"]),
        ("w[0:10:5].x", ["w0.x", "w5.x", "w10.x"]),
    ],
)
def test_ranges_are_spread(pattern: str, names: list[str]):
    assert list(ansible.expand_range(pattern)) == names


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("#!/bin/sh\necho hi\n", "this is a program"),
        ("plugin: aws_ec2\n", "sets up a plugin"),
        ("web:\n  hosts: [web1]\n", "web.hosts must be a mapping"),
        ("web:\n  hosts: {web1: {}, web1: {}}\n", "web1"),
        ("web:\n  hosts:\n    web1: [\n", "line 4"),
        ("web1 ansible_host\n", "line 1 is no host"),
        ("web1 x='\n", "line 1: no closing quotation"),
        ("w[3:1]\n", "counts from 3 to 1"),
        ("w[1:99999999999]\n", "more than 10000 hosts"),
        ("w[1:200][1:200]\n", "more than 10000 hosts"),
        ("[a:children]\nb\n[b:children]\na\n", "within itself"),
        ("[a:children]\na\n", "within itself"),
    ],
)
def test_what_is_no_inventory_is_refused_in_words(text: str, says: str):
    with pytest.raises(NotUnderstood, match=says):
        ansible.parse_inventory(text)


def test_a_person_gets_entries_and_what_they_lack(tmp_path: Path):
    found = keyturn_at(tmp_path, "inventory", "import", "ansible", str(ANSWERS / "ansible.ini"))
    assert found.returncode == 0
    assert "15 hosts: 0 whole, 15 lacking something" in found.stderr
    assert "# host_key: not in known_hosts: `keyturn inventory enroll db1 10.0.0.9` shows it" in (
        found.stdout
    )
    assert YAML(typ="safe").load(found.stdout)["hosts"]["db1"]["jump"] == "bastion"


def test_a_person_gets_a_line_where_it_goes_wrong(tmp_path: Path):
    (tmp_path / "hosts").write_text("[web]\n")
    empty = keyturn_at(tmp_path, "inventory", "import", "ansible", str(tmp_path / "hosts"))
    assert (empty.returncode, empty.stdout) == (1, "")
    assert empty.stderr == "keyturn: there is no host in this file that has a name of its own\n"
    (tmp_path / "hosts").write_bytes(b"\xff\xfe\x00")
    binary = keyturn_at(tmp_path, "inventory", "import", "ansible", str(tmp_path / "hosts"))
    assert (binary.returncode, len(binary.stderr.splitlines())) == (1, 1)
