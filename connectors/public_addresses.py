"""Which addresses belong to the public internet, and which to private networks. No I/O."""

from ipaddress import IPv4Address, IPv6Address, ip_network
from urllib.parse import SplitResult

Address = IPv4Address | IPv6Address

# What addresses call this machine, which is reached without TLS.
LOCAL_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})

# From IANA's registries of special-purpose addresses. Python's `is_global` knows most of them, but
# not those that embed an IPv4 address, which may be private: these come first.
_SPECIAL = tuple(
    ip_network(network)
    for network in (
        "64:ff9b::/96",  # NAT64
        "64:ff9b:1::/48",
        "2002::/16",  # 6to4
        "192.88.99.0/24",
        "2001::/32",  # Teredo
        "::ffff:0:0/96",
        "::/96",
        "224.0.0.0/4",  # multicast
        "ff00::/8",
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "240.0.0.0/4",
        "100::/64",
        "2001::/23",
        "2001:db8::/32",
        "2620:4f:8000::/48",
        "3fff::/20",
        "5f00::/16",
    )
)
# Networks of an organisation's own clients. Python's `is_private` includes more, such as the
# addresses for documentation.
_INTERNAL = tuple(
    ip_network(network)
    for network in (
        *("127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"),
        *("169.254.0.0/16", "100.64.0.0/10", "::1/128", "fc00::/7", "fe80::/10"),
    )
)
# Never the address of a service that people name: links, groups, no address, addresses that embed
# another, and where clouds give machines their credentials (AWS, Google, Oracle, Azure, Alibaba).
_FORBIDDEN = tuple(
    ip_network(network)
    for network in (
        *("0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4"),
        *("::/128", "fe80::/10", "fec0::/10", "ff00::/8"),
        *("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32"),
        *("fd00:ec2::/32", "fd20:ce::254/128", "fd00:c1::a9fe:a9fe/128"),
        *("100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32"),
    )
)
# The part of IPv6 that is assigned to the internet so far.
_IN_USE = ip_network("2000::/3")


def is_public(address: Address) -> bool:
    """Return whether *address* can belong to one machine on the public internet."""
    if is_forbidden(address) or (address.version == 6 and address not in _IN_USE):
        return False
    return address.is_global and not any(address in network for network in _SPECIAL)


def is_forbidden(address: Address) -> bool:
    """Return whether *address* must not be contacted, also where private addresses are allowed."""
    embedded = address.ipv4_mapped if address.version == 6 else None
    return any((embedded or address) in network for network in _FORBIDDEN)


def is_internal(address: Address) -> bool:
    """Return whether *address* belongs to a private network or to the host itself."""
    return any(address in network for network in _INTERNAL)


def is_encrypted_or_local(parts: SplitResult) -> bool:
    """Return whether an address begins with https://, or with http:// and names this machine."""
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOCAL_HOSTS)
