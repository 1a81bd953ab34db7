"""CARP groups in ifconfig of FreeBSD and OpenBSD, from published output: no BSD runs here."""

import pytest

from connectors import carp
from connectors.carp import CarpGroup
from connectors.errors import ParseError

FREEBSD = """\
igb0: flags=1008943<UP,BROADCAST,RUNNING,PROMISC,SIMPLEX,MULTICAST,LOWER_UP> metric 0 mtu 1500
\tdescription: WAN (wan)
\tether 00:00:5e:00:53:01
\tinet 198.51.100.2 netmask 0xffffff00 broadcast 198.51.100.255
\tinet 198.51.100.10 netmask 0xffffff00 broadcast 198.51.100.255 vhid 1
\tinet6 2001:db8:0:2::250 prefixlen 64 vhid 13
\tcarp: MASTER vhid 1 advbase 1 advskew 0
\t      peer 224.0.0.18 peer6 ff02::12
\tcarp: BACKUP vhid 13 advbase 2 advskew 100
\tstatus: active
lo0: flags=1008049<UP,LOOPBACK,RUNNING,MULTICAST,LOWER_UP> metric 0 mtu 16384
\tinet 127.0.0.1 netmask 0xff000000
net.inet.carp.ifdown_demotion_factor: 240
net.inet.carp.demotion: 0
net.inet.carp.preempt: 1
net.inet.carp.allow: 1
"""
OPENBSD = """\
em0: flags=8b43<UP,BROADCAST,RUNNING,PROMISC,ALLMULTI,SIMPLEX,MULTICAST> mtu 1500
\tinet 192.0.2.2 netmask 0xffffff00 broadcast 192.0.2.255
carp0: flags=8843<UP,BROADCAST,RUNNING,SIMPLEX,MULTICAST> mtu 1500
\tlladdr 00:00:5e:00:01:01
\tcarp: BACKUP carpdev em0 vhid 1 advbase 1 advskew 100
\tgroups: carp
\tstatus: backup
\tinet 192.0.2.1 netmask 0xffffff00 broadcast 192.0.2.255
net.inet.carp.preempt=1
net.inet.carp.allow=0
"""


def test_carp_groups_of_freebsd_are_parsed_with_their_addresses():
    known = carp.parse_groups(FREEBSD)
    assert [*known.groups] == [
        CarpGroup("igb0", 1, "MASTER", 0, ["198.51.100.10"]),
        CarpGroup("igb0", 13, "BACKUP", 100, ["2001:db8:0:2::250"]),
    ]
    assert (known.demotion, known.is_allowed) == (0, True)


def test_carp_interface_of_openbsd_is_parsed_as_one_group():
    known = carp.parse_groups(OPENBSD)
    assert [*known.groups] == [CarpGroup("carp0", 1, "BACKUP", 100, ["192.0.2.1"])]
    assert (known.demotion, known.is_allowed) == (None, False)


def test_invalid_ifconfig_output_is_a_parse_error():
    with pytest.raises(ParseError):
        carp.parse_groups("hello\n")
