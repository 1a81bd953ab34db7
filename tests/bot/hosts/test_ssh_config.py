"""Import of SSH configurations, compared with OpenSSH's own client."""

import re
import subprocess
from pathlib import Path

import pytest

from bot.hosts import ssh_config
from bot.hosts.imported_host import ImportedHost, InvalidImportError

CONFIG = """\
# Before any Host: for all of them.
ServerAliveInterval 5

Host *.internal !x.internal
  User inside
Host bastion gate
  HostName 192.0.2.1
  IdentityFile /etc/keys/b
  IdentityFile /etc/keys/second
host web1 db1.internal
  hostname = "%h.example.com"
  ProxyJump me@bastion:2200
  Port=2222
  Port 9
Host deep
  ProxyJump bastion,web1
Host plain x.internal
  ProxyJump none
  HostKeyAlias plain-key
Host old
\tProxyCommand ssh -q -W %h:%p me@bastion
Host *
  User all
  ProxyJump gate
"""


def _hosts(text: str) -> dict[str, ImportedHost]:
    return {host.name: host for host in ssh_config.parse_ssh_config(text).hosts}


@pytest.mark.real
def test_ssh_config_is_read_as_by_openssh(tmp_path: Path):
    (tmp_path / "config").write_text(CONFIG)
    hosts = _hosts(CONFIG)
    assert list(hosts) == [
        *("bastion", "db1.internal", "deep", "gate", "old", "plain", "web1", "x.internal"),
    ]
    for name, host in hosts.items():
        output = subprocess.run(
            ["ssh", "-G", "-F", str(tmp_path / "config"), name],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        options = dict(line.split(" ", 1) for line in reversed(output.splitlines()) if " " in line)
        assert (options["hostname"], options["port"], options["user"]) == (
            host.address,
            str(host.port),
            host.user,
        )
        jumps = options.get("proxyjump", "")
        assert ssh_config.parse_hop(jumps.split(",")[-1]) == (host.jump if name != "old" else "")
        if host.key:
            assert options["identityfile"] == host.key


def test_proxycommand_with_ssh_is_read_as_jump_host_before_proxyjump():
    assert _hosts(CONFIG)["old"].jump == "bastion"
    (nc,) = ssh_config.parse_ssh_config("Host a\nProxyCommand ssh -i k gate -W %h:%p\n").hosts
    assert nc.jump == "gate"


def test_other_proxycommand_is_reported_without_a_jump_host():
    (host,) = ssh_config.parse_ssh_config("Host a\n  ProxyCommand nc -x 'proxy %h\n").hosts
    assert host.jump == ""
    assert "a ProxyCommand connects to it, nc -x 'proxy a: name a jump host" in host.notes[0]


def test_last_of_several_jump_hosts_is_next_to_the_host():
    deep = _hosts(CONFIG)["deep"]
    assert deep.jump == "web1"
    assert deep.notes == ("jump: the way leads through bastion first: set that jump for web1",)


def test_match_and_include_lines_are_skipped_with_a_remark():
    findings = ssh_config.parse_ssh_config(
        'Host a\nMatch exec "true"\n  User evil\nInclude conf.d/*\n'
    )
    assert findings.hosts == (ImportedHost("a", "a"),)
    assert [re.sub(r":.*", "", remark) for remark in findings.remarks] == ["line 2", "line 4"]


@pytest.mark.parametrize(
    ("jump", "name"),
    [
        ("bastion", "bastion"),
        ("me@bastion:22", "bastion"),
        ("ssh://me@bastion:22", "bastion"),
        ("[2001:db8::1]:22", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
    ],
)
def test_jump_host_is_parsed_in_each_notation(jump: str, name: str):
    assert ssh_config.parse_hop(jump) == name


@pytest.mark.parametrize(
    ("text", "line"), [("Host 'a\n", "host 'a"), ("Host\n", "line host"), ("%%\n", "line %%")]
)
def test_invalid_ssh_config_is_rejected_with_its_line(text: str, line: str):
    with pytest.raises(
        InvalidImportError, match=f"unparsable {line}. Correct or remove that line"
    ):
        ssh_config.parse_ssh_config(text)


def test_ssh_config_import_runs_no_command_and_resolves_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    looked_up: list[str] = []
    monkeypatch.setattr("socket.gethostbyname", looked_up.append)
    monkeypatch.setattr("socket.getaddrinfo", looked_up.append)
    mark = tmp_path / "mark"
    text = (
        "CanonicalizeHostname always\nCanonicalDomains example.com\nHost a\n  Port 9\n"
        f'Match exec "touch {mark}"\n  Port 8\nMatch=host a\n  Port 7\nHost b\n'
    )
    found = [(host.name, host.port) for host in ssh_config.parse_ssh_config(text).hosts]
    assert found == [("a", 9), ("b", 22)]
    assert not mark.exists()
    assert looked_up == []


CANONICAL = """\
CanonicalizeHostname yes
CanonicalDomains example.com

Host web1
  Port 2200

Host alias
  HostName web2

Host *.example.com
  User ops
  Port 9
  ProxyJump bastion.example.com
"""


def test_canonical_name_gets_its_sections_as_in_openssh():
    hosts = _hosts(CANONICAL)
    for name, full, port in (("web1", "web1.example.com", 2200), ("alias", "web2.example.com", 9)):
        host = hosts[name]
        assert (host.address, host.user, host.port) == (full, "ops", port)
        assert host.jump == "bastion.example.com"
        (note,) = host.notes
        assert note.startswith(f"address: CanonicalDomains makes {full} of ")


def test_canonical_name_in_several_domains_is_noted():
    (web1, _) = ssh_config.parse_ssh_config(
        CANONICAL.replace("Domains example.com", "Domains example.com example.net")
    ).hosts[::-1]
    assert (web1.address, web1.user) == ("web1", "")
    assert "looks web1 up in example.com, example.net" in web1.notes[0]


@pytest.mark.parametrize(
    "section",
    [
        "Host web1\n  HostName 192.0.2.1\n",
        "Host web1\n  HostName web1.example.net.\n",
        "Host web1\n  HostName a.b.example.net\n",
        "Host web1\n  ProxyJump gate\n",
        "Host web1\n  CanonicalizeHostname no\n",
    ],
)
def test_name_that_openssh_does_not_canonicalize_keeps_its_settings(section: str):
    text = f"{section}Host *\n{CANONICAL}".replace("Host web1\n  Port 2200\n", "")
    web1 = _hosts(text)["web1"]
    assert (web1.user, web1.notes) == ("", ())


def test_ssh_config_with_a_byte_order_mark_is_read():
    (host,) = ssh_config.parse_ssh_config("\ufeffHost a\r\n  Port 9\r\n").hosts
    assert (host.name, host.port) == ("a", 9)


@pytest.mark.parametrize("path", ["${HOME}/.ssh/id", "~/.ssh/%k"])
def test_key_file_that_openssh_computes_is_noted(path: str):
    (host,) = ssh_config.parse_ssh_config(f"Host a\n  IdentityFile {path}\n").hosts
    assert host.key == ""
    assert host.notes[0].startswith("key: OpenSSH computes ")
    (none,) = ssh_config.parse_ssh_config("Host a\n  IdentityFile none\n").hosts
    assert (none.key, none.notes) == ("", ())


def test_identity_file_in_a_home_directory_keeps_its_tilde():
    (host,) = ssh_config.parse_ssh_config("Host a\n  IdentityFile ~/.ssh/id  # mine\n").hosts
    assert host.key == "~/.ssh/id"


def test_invalid_port_in_ssh_config_is_noted():
    (host,) = ssh_config.parse_ssh_config("Host a\n  Port 70000\n").hosts
    assert (host.port, host.notes) == (22, ("port: 70000 is not a valid port",))
