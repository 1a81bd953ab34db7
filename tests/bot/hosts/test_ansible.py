"""Import of Ansible inventories, as `ansible-inventory --list` prints them."""

import json
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from bot.hosts import ansible
from bot.hosts.imported_host import ImportedHost, InvalidImportError
from tests.cli_process import run_keyturn_with_policy

ANSWERS = Path(__file__).parent / "answers"
# Recorded: ansible-inventory [core 2.19.14] -i FILE --list
PRINTED = (ANSWERS / "ansible-inventory.json").read_text()


def _hosts(text: str) -> dict[str, ImportedHost]:
    return {host.name: host for host in ansible.parse_ansible_inventory(text).hosts}


def _format_inventory(variables: dict[str, Any], **groups: object) -> str:
    return json.dumps({"_meta": {"hostvars": {"db1": variables}}, **groups})


def test_ansible_ports_users_jump_hosts_and_groups_are_imported():
    hosts = _hosts(PRINTED)
    assert len(hosts) == 15
    assert hosts["web02.example.com"] == ImportedHost(
        name="web02.example.com",
        address="web02.example.com",
        port=2222,
        user="deploy",
        key="/etc/keyturn/web",
        groups=frozenset({"web", "prod"}),
    )
    assert (hosts["db1"].address, hosts["db1"].jump) == ("10.0.0.9", "bastion")
    assert hosts["db2"].jump == "bastion"
    assert hosts["sw1"].platform == "cisco_ios"
    assert hosts["sw1"].groups == {"edge", "everything", "prod"}
    assert (hosts["2001:db8::7"].port, hosts["2001:db8::7"].user) == (2222, "six")
    assert hosts["mail.example.com"].groups == frozenset()


def test_ansible_host_without_variables_is_imported():
    (host,) = ansible.parse_ansible_inventory(
        '{"_meta": {"hostvars": {}}, "web": {"hosts": ["w1"]}}'
    ).hosts
    assert host == ImportedHost("w1", "w1", groups=frozenset({"web"}))


def test_ansible_groups_that_contain_each_other_are_read_once():
    text = _format_inventory(
        {}, a={"children": ["b"]}, b={"children": ["a", "gone"], "hosts": ["db1"]}
    )
    assert _hosts(text)["db1"].groups == {"a", "b"}


@pytest.mark.parametrize(
    "value",
    ["{{ lookup('env', 'USER') }}", {"__ansible_vault": "$ANSIBLE_VAULT;1.1;AES256\n6162\n"}],
)
def test_ansible_template_value_is_skipped_with_a_note(value: object):
    host = _hosts(_format_inventory({"ansible_user": value}))["db1"]
    assert host.user == ""
    assert host.notes == ("ansible_user: Ansible computes it: write the resulting value",)


def test_ansible_host_without_ssh_is_skipped_with_a_remark():
    assert ansible.parse_ansible_inventory(PRINTED).remarks == (
        "localhost is not imported: Ansible connects to it by local, not SSH",
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[web]\nweb1\n", "Invalid JSON"),
        ("all:\n  hosts:\n", "Invalid JSON"),
        ("", "Invalid JSON"),
        ("[]", "Input should be"),
        ('{"all": {"hosts": ["web1"]}}', "it has no member _meta"),
        ('{"_meta": {"hostvars": {"a": 1}}}', "_meta.hostvars.a: Input should be"),
        (
            '{"_meta": {"hostvars": {}}, "web": {"hosts": {"web1": {}}}}',
            "web.hosts: Input should be",
        ),
    ],
)
def test_invalid_ansible_inventory_is_rejected_with_the_command_to_run(text: str, problem: str):
    with pytest.raises(InvalidImportError) as refused:
        ansible.parse_ansible_inventory(text)
    assert problem in str(refused.value)
    assert str(refused.value).endswith(
        "Run `ansible-inventory -i FILE --list > inventory.json` and import inventory.json"
    )


def test_ansible_import_prints_entries_and_missing_fields(tmp_path: Path):
    file = ANSWERS / "ansible-inventory.json"
    result = run_keyturn_with_policy(tmp_path, "inventory", "import", "ansible", str(file))
    assert result.returncode == 0
    assert "15 hosts: 0 complete, 15 incomplete" in result.stderr
    assert "# host_key: not in known_hosts: run `keyturn inventory enrol db1 10.0.0.9`" in (
        result.stdout
    )
    assert YAML(typ="safe").load(result.stdout)["hosts"]["db1"]["jump"] == "bastion"


def test_ansible_import_prints_one_line_for_an_error(tmp_path: Path):
    file = tmp_path / "inventory.json"
    file.write_text('{"_meta": {"hostvars": {}}, "all": {}}')
    empty = run_keyturn_with_policy(tmp_path, "inventory", "import", "ansible", str(file))
    assert (empty.returncode, empty.stdout) == (1, "")
    assert empty.stderr == "keyturn: the file contains no named hosts\n"
    for wrong in (b"[web]\nweb1\n", b"\xff\xfe\x00"):
        file.write_bytes(wrong)
        refused = run_keyturn_with_policy(tmp_path, "inventory", "import", "ansible", str(file))
        assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 1)
