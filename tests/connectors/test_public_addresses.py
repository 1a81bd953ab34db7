"""Public addresses, compared with a second implementation in plain integers."""

import random
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest

from connectors.public_addresses import is_forbidden, is_public

# First and last address of what is no single machine's on the internet, counted by hand.
V4 = [
    (0x00000000, 0x00FFFFFF),
    (0x0A000000, 0x0AFFFFFF),
    (0x64400000, 0x647FFFFF),
    (0x7F000000, 0x7FFFFFFF),
    (0xA9FE0000, 0xA9FEFFFF),
    (0xAC100000, 0xAC1FFFFF),
    (0xC0000000, 0xC00000FF),
    (0xC0000200, 0xC00002FF),
    (0xC01FC400, 0xC01FC4FF),
    (0xC034C100, 0xC034C1FF),
    (0xC0586300, 0xC05863FF),
    (0xC0A80000, 0xC0A8FFFF),
    (0xC0AF3000, 0xC0AF30FF),
    (0xC6120000, 0xC613FFFF),
    (0xC6336400, 0xC63364FF),
    (0xCB007100, 0xCB0071FF),
    (0xE0000000, 0xFFFFFFFF),
]
# The same by the first 32 bits, which is enough for all that lies in 2000::/3.
V6 = [
    (0x00000000, 0x1FFFFFFF),
    (0x20010000, 0x200101FF),
    (0x20010DB8, 0x20010DB8),
    (0x20020000, 0x2002FFFF),
    (0x3FFF0000, 0x3FFF0FFF),
    (0x40000000, 0xFFFFFFFF),
]
AS112 = range(0x2620004F8000 << 80, 0x2620004F8001 << 80)


def public_4(number: int) -> bool:
    return not any(first <= number <= last for first, last in V4)


def public_6(number: int) -> bool:
    head = number >> 96
    return number not in AS112 and not any(first <= head <= last for first, last in V6)


def test_random_addresses_are_public_as_by_integer_ranges():
    chance = random.Random(3)  # noqa: S311 - to be repeated, not secret
    for number in (chance.getrandbits(32) for _ in range(20_000)):
        assert is_public(IPv4Address(number)) == public_4(number), IPv4Address(number)
    for number in (chance.getrandbits(125) | 1 << 125 for _ in range(20_000)):
        assert is_public(IPv6Address(number)) == public_6(number), IPv6Address(number)


@pytest.mark.parametrize("edge", [edge for ends in V4 for edge in ends])
def test_edges_of_public_ipv4_ranges_are_correct(edge: int):
    for number in {max(edge - 1, 0), edge, min(edge + 1, 2**32 - 1)}:
        assert is_public(IPv4Address(number)) == public_4(number), IPv4Address(number)


@pytest.mark.parametrize("edge", [*(edge for ends in V6 for edge in ends), 0x2620004F])
def test_edges_of_public_ipv6_ranges_are_correct(edge: int):
    low, high = edge << 96, ((edge + 1) << 96) - 1
    for number in {max(low - 1, 0), low, high, min(high + 1, 2**128 - 1)}:
        assert is_public(IPv6Address(number)) == public_6(number), IPv6Address(number)


@pytest.mark.parametrize(
    "address",
    [
        "64:ff9b::a00:1",
        "2002:a00:1::",
        "224.0.0.1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "::ffff:10.0.0.1",
        "::ffff:8.8.8.8",
        "fe80::1",
        "fc00::1",
        "ff02::1",
        "::1",
        "::",
        "100.64.0.1",
        "192.88.99.1",
    ],
)
def test_mapped_tunnelled_and_multicast_addresses_are_not_public(address: str):
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "5.172.196.188", "2a01:7e00::1", "2001:4860::8"])
def test_addresses_of_internet_hosts_are_public(address: str):
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "fd00:ec2::254", "fd20:ce::254",
        "100.100.100.200", "168.63.129.16", "0.0.0.1", "::", "::ffff:0.0.0.1", "224.0.0.1",
        "ff02::1", "255.255.255.255", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "fec0::1",
    ],
)  # fmt: skip
def test_link_local_metadata_and_group_addresses_are_forbidden(address: str):
    assert is_forbidden(ip_address(address))
    assert not is_public(ip_address(address))


@pytest.mark.parametrize(
    "address", ["10.0.0.1", "192.168.1.1", "100.64.0.1", "127.0.0.1", "::1", "fd12::1", "8.8.8.8"]
)
def test_private_and_public_addresses_are_not_forbidden(address: str):
    assert not is_forbidden(ip_address(address))
