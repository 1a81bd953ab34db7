"""Host keys from known_hosts, compared with ssh-keygen."""

import subprocess
from pathlib import Path

import pytest

from bot.hosts.known_hosts import KnownKey, find_host_key, parse_known_hosts
from tests.playground.keys import make_key

ED = make_key().public
OTHER = make_key().public
EC = make_key("ecdsa").public
RSA = make_key("rsa").public


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "port"), [("web1.example.com", 22), ("10.0.0.9", 2222), ("2001:db8::1", 22)]
)
def test_host_name_hashed_by_ssh_keygen_is_found_in_known_hosts(
    tmp_path: Path, name: str, port: int
):
    file = tmp_path / "known_hosts"
    written = name if port == 22 else f"[{name}]:{port}"
    file.write_text(f"other {OTHER}\n{written} {ED}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    assert name not in file.read_text()
    assert find_host_key(parse_known_hosts(file.read_text()), [name.upper()], port) == KnownKey(ED)
    assert find_host_key(parse_known_hosts(file.read_text()), [name], port + 1) == KnownKey(None)
    assert find_host_key(parse_known_hosts(file.read_text()), ["web2"], port) == KnownKey(None)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([f"a,web1 {RSA}", f"web1 {EC} a comment", f"web1 {ED}"], KnownKey(ED)),
        ([f"web1 {RSA}", f"web1 {EC}"], KnownKey(EC)),
        ([f"web* {ED}"], KnownKey(ED)),
        ([f"web*,!web1 {ED}"], KnownKey(None)),
        ([f"web[1] {ED}"], KnownKey(None)),
        (
            [f"# web1 {ED}", "", "web1", "web1 ssh-dss AAAA", "web1 ssh-ed25519 AAAA"],
            KnownKey(None),
        ),
        ([f"|1|!!|?? {ED}", f"|1|a {ED}"], KnownKey(None)),
        (
            [f"web1 {ED}", f"web1 {OTHER}", f"web1 {RSA}"],
            KnownKey(None, "known_hosts has 2 different ssh-ed25519 keys for it"),
        ),
        ([f"web1 {ED}", f"web1 {ED}"], KnownKey(ED)),
        ([f"web1 {ED}", f"@revoked * {ED}"], KnownKey(None, "its key is revoked in known_hosts")),
        (
            [f"@cert-authority *.example.com,web1 {ED}"],
            KnownKey(None, "known_hosts has only the CA that signs its key"),
        ),
    ],
)
def test_known_hosts_yields_one_unambiguous_host_key_or_none(lines: list[str], expected: KnownKey):
    assert find_host_key(parse_known_hosts("\n".join(lines)), ["web1"], 22) == expected
