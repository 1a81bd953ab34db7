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


def test_ansible_inventory_with_a_byte_order_mark_is_read():
    assert len(_hosts(f"\ufeff{PRINTED}")) == 15


def test_ansible_groups_that_contain_each_other_are_read_once():
    text = _format_inventory(
        {}, a={"children": ["b"]}, b={"children": ["a", "gone"], "hosts": ["db1"]}
    )
    assert _hosts(text)["db1"].groups == {"a", "b"}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("{{ lookup('env', 'USER') }}", "Ansible computes it"),
        (
            {"__ansible_vault": "$ANSIBLE_VAULT;1.1;AES256\n6162\n"},
            "Ansible Vault encrypts it",
        ),
        ({"name": "ops"}, "it is not a text"),
    ],
)
def test_ansible_value_that_cannot_be_read_is_skipped_with_a_note(value: object, why: str):
    host = _hosts(_format_inventory({"ansible_user": value}))["db1"]
    assert host.user == ""
    assert host.notes == (f"ansible_user: {why}: write the resulting value",)


def test_ansible_null_is_no_value_and_unsafe_text_is_taken_as_it_is():
    values = {"ansible_host": None, "ansible_ssh_host": "192.0.2.1", "ansible_user": None}
    null = _hosts(_format_inventory({**values, "ansible_password": None}))["db1"]
    assert (null.address, null.user, null.notes) == ("192.0.2.1", "", ())
    unsafe = {"ansible_user": {"__ansible_unsafe": "{{ops"}, "ansible_connection": None}
    host = _hosts(_format_inventory(unsafe))["db1"]
    assert (host.address, host.user, host.notes) == ("db1", "{{ops", ())


def test_ansible_connections_of_collections_are_recognised():
    inventory = ansible.parse_ansible_inventory((ANSWERS / "ansible-kinds.json").read_text())
    assert [(host.name, host.address) for host in inventory.hosts] == [
        ("web1", "web1"),
        ("web2", "192.0.2.12"),
        ("web3", "192.0.2.13"),
        ("web4", "192.0.2.14"),
    ]
    assert [host.jump for host in inventory.hosts] == ["", "", "", "bastion"]
    assert [remark.partition(" ")[0] for remark in inventory.remarks] == [
        *("ctl", "win1", "ct1", "i-1", "pod1", "api1"),
    ]


@pytest.mark.parametrize(
    "connection",
    ["ssh", "smart", "ansible.builtin.ssh", "paramiko", "ansible.netcommon.network_cli"],
)
def test_ansible_host_by_ssh_is_imported(connection: str):
    host = _hosts(_format_inventory({"ansible_connection": connection}))["db1"]
    assert host.notes == ()


def test_ansible_host_by_netconf_is_imported_with_a_note_on_its_port():
    host = _hosts(_format_inventory({"ansible_connection": "ansible.netcommon.netconf"}))["db1"]
    assert host.notes == ("port: Ansible uses NETCONF: write the port of the SSH command line",)


@pytest.mark.parametrize(
    ("arguments", "jump"),
    [
        ("-o ProxyJump=bastion", "bastion"),
        ("-oProxyJump=ops@bastion:2200", "bastion"),
        ("-o 'ProxyJump bastion'", "bastion"),
        ("-o proxyjump=[2001:db8::1]:22", "2001:db8::1"),
        ("-J bastion -o ProxyJump=other", "bastion"),
        ("-Jbastion", "bastion"),
        ("-o ProxyJump=none -J other", ""),
        ("-o UserKnownHostsFile=/etc/ssh/kh-Jump1", ""),
        ("-o UserKnownHostsFile=/etc/ssh/kh-J bastion", ""),
        ("-o IdentityFile=/keys/x-J", ""),
        ("-o ProxyCommand='ssh -W %h:%p -q ops@bastion'", "bastion"),
        ('-o ProxyCommand="ssh -i k bastion -W [%h]:%p"', "bastion"),
        ("-o ProxyCommand=none", ""),
    ],
)
@pytest.mark.parametrize(
    "name", ["ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args"]
)
def test_ansible_jump_host_is_an_option_and_no_part_of_a_path(
    arguments: str, jump: str, name: str
):
    host = _hosts(_format_inventory({name: arguments}))["db1"]
    assert (host.jump, host.notes) == (jump, ())


@pytest.mark.parametrize("arguments", ["-o ProxyCommand='nc %h %p'", "-o ProxyCommand='open"])
def test_ansible_proxy_that_is_not_understood_is_noted(arguments: str):
    (note,) = _hosts(_format_inventory({"ansible_ssh_args": arguments}))["db1"].notes
    assert note.startswith("jump: ")
    assert note.endswith(": name a jump host")


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({"ansible_host": "[2001:db8::7]"}, ("2001:db8::7", 22)),
        ({"ansible_host": "[2001:db8::7]:2222"}, ("2001:db8::7", 2222)),
        ({"ansible_host": "[2001:db8::7]:2222", "ansible_port": 22}, ("2001:db8::7", 22)),
        ({"ansible_host": "2001:db8::7"}, ("2001:db8::7", 22)),
    ],
)
def test_ansible_address_in_brackets_is_read_without_them(
    variables: dict[str, Any], found: tuple[str, int]
):
    host = _hosts(_format_inventory(variables))["db1"]
    assert (host.address, host.port, host.notes) == (*found, ())


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
    assert (empty.returncode, empty.stdout) == (2, "")
    assert empty.stderr == "keyturn: the file contains no named hosts\n"
    for wrong in (b"[web]\nweb1\n", b"\xff\xfe\x00"):
        file.write_bytes(wrong)
        refused = run_keyturn_with_policy(tmp_path, "inventory", "import", "ansible", str(file))
        assert (refused.returncode, len(refused.stderr.splitlines())) == (2, 1)
