"""One odd row costs a list nothing but itself, whatever its parser.

Every parser of a list is found by introspection and needs a recorded sample here. Each row of the
sample is damaged in several ways, and foreign text is inserted before and after it.
"""

import importlib
import inspect
import json
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints

import pytest

import connectors
from connectors import (
    bond,
    carp,
    certificate,
    exim,
    gateway,
    haproxy_peers,
    nfsd,
    openvpn,
    shaping,
    strongswan,
    switch,
    switch_tables,
    zfs_snapshot,
)
from connectors.errors import ParseError
from connectors.rows import NamedRows, Rows, list_odd_rows
from tests.connectors import (
    test_carp,
    test_nfsd,
    test_openvpn,
    test_pdu,
    test_strongswan,
    test_zpool_json,
)

ANSWERS = Path(__file__).parent / "answers"
FOREIGN = "kernel: märchenhaft unexpected message"
# A parser of which a line may be anything, or of which an odd line must refuse all.
NO_LISTS = {
    "csf_grep.parse_matches": "a line that is no rule is shown as it is",
    "csf_list.parse_list": "Keyturn's own file: a line of other people is refused",
    "haproxy_limits.parse_limits": "a configuration: other lines are about something else",
    "pdu.parse_behind": "a setting of the inventory, which its pattern restricts",
    "rate_limit.parse_limits": "a configuration: other lines are about something else",
    **dict.fromkeys(
        (
            *("certificate.parse_certificate", "conntrack.parse_conntrack", "csf.parse_firewall"),
            *("smart.parse_health", "stick_table.parse_entry", "systemd.parse_service"),
            *("uptime.parse_uptime", "run_signed.parse_enrolment"),
        ),
        "one object, which is understood or not",
    ),
    "run_signed.parse_texts": "what people signed: half of it would be another plan",
    "csf_grep.parse_entries": "it selects rows that are parsed already",
    "haproxy_limits.parse_config": "a configuration: other lines are about something else",
    "pingdom.parse_feed": "a feed with an odd line is refused as a whole",
    "hidepid.parse_current": "a pair of numbers",
    "systemd.parse_journal": "a line of a journal may be anything",
    "bond.parse_samples": "two samples of one bond",
}


def read(name: str) -> str:
    return (ANSWERS / name).read_text()


@dataclass(frozen=True)
class Sample:
    """A recorded output, and where its rows are."""

    text: str
    rows: str = r".+"
    """The regular expression of a line that is a row."""
    parse: Callable[[str], object] | None = None
    """The parser with its other arguments."""
    row_count: int = 1
    """How many rows a line may have."""
    foreign: bool = True
    """Whether foreign text between rows can be told from them."""


SAMPLES: Mapping[str, Sample] = {
    "access_log.parse_addresses": Sample(read("access_log/addresses.txt")),
    "access_log.parse_names": Sample(read("access_log/names.txt")),
    "access_log.parse_traffic": Sample(read("access_log/counted.txt"), r"\d+\t\d+\t\d+\t.*"),
    "allocator.parse_processes": Sample(read("allocator/sleep.txt"), r"pid \d+"),
    "apache_agents.parse_agents": Sample(read("apache/two.txt"), r"SetEnvIfNoCase .*"),
    "block.parse_queues": Sample(
        read("storage/queues-linux-6.1.txt"), r"/sys/block/sda/queue/(read_ahead_kb|rotational):.*"
    ),
    "bond.parse_bond": Sample(
        read("network/bond-rr.txt"),
        r"Link Failure Count: .*",
        foreign=False,  # a line of a new kernel looks alike
        parse=partial(bond.parse_bond, "bond0"),
    ),
    "bond.parse_drivers": Sample(read("network/sysfs-drivers.txt")),
    "carp.parse_groups": Sample(test_carp.FREEBSD, r"\tcarp: .*", parse=carp.parse_groups),
    "certificate.parse_listeners": Sample(
        read("certificate/listeners.txt"),
        parse=lambda text: certificate.parse_listeners(
            text, int(re.findall(r":(\d+) ", read("certificate/listeners.txt"))[0])
        ),
    ),
    "conntrack.parse_boot_limits": Sample(
        "/etc/sysctl.conf:net.netfilter.nf_conntrack_max=65536\n"
        "/etc/sysctl.d/10-fw.conf: net/netfilter/nf_conntrack_max = 131072\n"
    ),
    "haproxy_peers.parse_peers": Sample(
        read("haproxy/2.6-peers.txt"), r"  0x.*", parse=haproxy_peers.parse_peers
    ),
    "history.parse_journal_logins": Sample(
        "1795262354.669441 vm sshd-session[27]: Accepted publickey for ada from 192.0.2.7 port 9\n"
        "1795262355.000000 vm kernel: Linux version 6.12.41 (Debian)\n"
        "1795262356.000000 vm login[9]: LOGIN ON tty1 BY ben\n"
    ),
    "history.parse_logins": Sample(read("history/logins.txt"), r"\S+ .*T.*"),
    "history.parse_packages": Sample(read("history/packages-dpkg.txt"), r"\d{4}-.*"),
    "history.parse_sudo": Sample(read("history/sudo.txt"), r"\d+\..*"),
    "iostat.parse_text": Sample(read("storage/iostat-12.6.txt"), r"(sd|nvme|vd|dm-|md)\S+ .*"),
    "ipmi.parse_events": Sample(
        "   1 | 03/14/2023 | 08:15:02 | Power Supply #0x51 | Failure detected | Asserted\n"
        "   2 | 03/14/2023 | 08:15:09 | Power Supply #0x51 | Presence detected | Asserted\n",
    ),
    "ipmi.parse_sensors": Sample(
        "Ambient Temp     | 0Eh | ok  |  7.1 | 23 degrees C\n"
        "PS Redundancy    | 77h | ok  |  7.1 | Fully Redundant\n",
    ),
    "mounts.parse_exports": Sample(read("storage/exportfs-s.txt")),
    "nfsd.parse_connections": Sample(
        "0 0 192.0.2.1:2049 192.0.2.10:719\n0 0 [2001:db8::1]:2049 [2001:db8::7]:945\n",
        parse=nfsd.parse_connections,
    ),
    "nginx_agents.parse_agents": Sample(read("agents/two.txt"), r"if \(\$http_user_agent .*"),
    "openvpn.parse_status": Sample(
        test_openvpn.answer(read("vpn/openvpn-status-2.txt")),
        r"CLIENT_LIST,.*",
        parse=openvpn.parse_status,
    ),
    "postfix.parse_queue": Sample(read("postfix/three.txt"), r"\{.*"),
    "raid.parse_arrays": Sample(read("storage/mdstat-clean.txt"), r"md\d.*"),
    "raid.parse_detail": Sample(read("storage/mdadm-raid1.txt"), r" +\d+ +\d+ +\d+ +\d+ .*"),
    "raid.parse_mismatches": Sample(read("storage/mismatches.txt")),
    "run_signed.parse_history": Sample(
        "".join(
            f"p ab12-34cd/{step}-do 1795852800 0\na do {step}\nd keyturn-plan 1\nd run 0\n"
            "s keyturn-section 1\n"
            "g -----BEGIN SSH SIGNATURE-----\ng AAAA\ng -----END SSH SIGNATURE-----\n"
            for step in (1, 2, 3)
        ),
        r"p .*",
    ),
    "rate_limit.parse_counts": Sample(read("rate_limit/counts.txt"), r" +\d+ .*"),
    "shaping.parse_classes": Sample(read("shaping/htb-classes.txt")),
    "stick_table.parse_heads": Sample(read("haproxy/2.6-tables.txt"), r"# table.*"),
    "stick_table.parse_table": Sample(read("haproxy/2.6-http.txt"), r"0x.*"),
    "strongswan.parse_connections": Sample(
        test_strongswan.CONNECTIONS, r"list-conn event .*", parse=strongswan.parse_connections
    ),
    "strongswan.parse_old_status": Sample(test_strongswan.OLD, r" +\S+\[\d+\]: ESTABLISHED.*"),
    "strongswan.parse_tunnels": Sample(test_strongswan.TUNNELS, r"list-sa event .*", row_count=2),
    "switch_tables.parse_addresses": Sample(
        read("network/cisco-addresses.txt"), r" *\d+ +[0-9a-f.]{14} .*"
    ),
    "switch_tables.parse_cdp_neighbours": Sample(
        read("network/cisco-cdp-neighbours.txt"),
        r"\S+ +\S+ \S+ +\d+ .*",
        parse=switch_tables.parse_cdp_neighbours,
    ),
    "switch_tables.parse_errors": Sample(
        read("network/cisco-interfaces.txt"), r" +\d+ input errors.*", foreign=False
    ),
    "switch_tables.parse_lldp_neighbours": Sample(
        read("network/cisco-lldp-neighbours.txt"), r"\S+ .* \d+ +[A-Z,]+ .*", foreign=False
    ),
    "switch.parse_lags": Sample(read("network/cisco-etherchannel.txt"), r"\d+ +Po.*"),
    "switch.parse_ports": Sample(
        read("network/cisco-interfaces-status.txt"),
        r"(Gi|Te)\S+ .*",
        parse=switch.parse_ports,
    ),
    "switch.parse_vlans": Sample(read("network/cisco-vlan.txt"), r"\d+ +\S+ +act.*"),
    "gateway.parse_gateways": Sample(
        read("network/cisco-standby.txt"), r"\S+ - Group .*", parse=gateway.parse_gateways
    ),
    "systemd.parse_services": Sample(
        "cron.service loaded active running Regular background program\n"
        "ssh.service loaded active running OpenBSD Secure Shell server\n",
    ),
    "zfs_snapshot.parse_snapshots": Sample(
        "tank\ntank@a\ntank@b\n",
        r"tank@.*",
        parse=lambda text: zfs_snapshot.parse_snapshots(text, "tank"),
    ),
    "zfs.parse_spaces": Sample(read("zpool/fuse-list.txt")),
    "zfs.parse_traffic": Sample(
        read("zpool/fuse-iostat.txt"), r"    /srv/disks/d\d +- +- +\d+  2\.\d\dK.*"
    ),
    "zpool_text.parse_pools": Sample(read("zpool/2.1-finished.txt"), r"\t +\S+ +ONLINE .*"),
    "exim.parse_queue": Sample(
        read("mail_queue/three.txt"),
        r" *\d+[smhdw] .*",
        row_count=2,
        foreign=False,
        parse=exim.parse_queue,
    ),
    "pdu.parse_outlets": Sample(test_pdu.RPDU, r".*\.4\.\d+ = INTEGER.*"),
    "nfsd.parse_clients": Sample(
        f"{test_nfsd.NEW}end\n", r"client \d+ \d+", parse=nfsd.parse_clients
    ),
}


@dataclass(frozen=True)
class Document:
    """A recorded JSON document, and the place of its rows."""

    text: str
    place: tuple[str | int, ...]
    parse: Callable[[str], object] | None = None


_LINKS, _, _QUEUES = read("shaping/limited.txt").partition("\n")
DOCUMENTS: Mapping[str, Document] = {
    "bgp.parse_peers": Document(read("bgp/established.json"), ("default", "ipv4Unicast", "peers")),
    "block_tree.parse_tree": Document(read("storage/lsblk.txt"), ("blockdevices",)),
    "bond.parse_links": Document(read("network/iproute2-6.1-link.txt"), ()),
    "iostat.parse_json": Document(
        read("storage/iostat-12.6-json.txt"),
        ("sysstat", "hosts", 0, "statistics", 0, "disk"),
    ),
    "perc.parse_controllers": Document(
        read("perc/degraded.json"), ("Controllers", 0, "Response Data", "PD LIST")
    ),
    "shaping.parse_interfaces": Document(
        _LINKS, (), lambda text: shaping.parse_interfaces(f"{text}\n{_QUEUES}")
    ),
    "shaping.parse_list": Document(
        _LINKS, (), lambda text: shaping.parse_list(f"{text}\n{_QUEUES}")
    ),
    "smart.parse_disks": Document(read("smart/scan.json"), ("devices",)),
    "zpool_json.parse_document": Document(
        json.dumps(test_zpool_json.document()),
        ("pools",),
    ),
}
XML = {"msa_xml.parse_objects": read("msa/disks.xml")}
LISTS = r"Rows|tuple\[|Sequence\[|list\[|Mapping\[|frozenset\["


def discover() -> Iterator[tuple[str, Callable[..., object]]]:
    """Yield every public parser whose result is a list, or an object that has rows."""
    for module in pkgutil.iter_modules(connectors.__path__):
        loaded = importlib.import_module(f"connectors.{module.name}")
        for name, function in inspect.getmembers(loaded, inspect.isfunction):
            is_own = function.__module__ == loaded.__name__
            if (
                name.startswith("parse_")
                and is_own
                and module.name not in ("rows", "device_output")
            ):
                result = get_type_hints(function).get("return")
                kinds = (result, *get_args(result))
                if re.search(LISTS, str(result)) or any(map(_has_rows, kinds)):
                    yield f"{module.name}.{name}", function


def _has_rows(kind: object) -> bool:
    return is_dataclass(kind) and any(re.search(LISTS, str(field.type)) for field in fields(kind))


PARSERS = dict(discover())


def list_rows(value: object) -> list[str]:
    """Return the understood rows of a result, as text."""
    if isinstance(value, NamedRows):
        return [repr(item) for item in cast("NamedRows[str, object]", value).items()]
    if isinstance(value, Rows):
        return [repr(row) for row in cast("Rows[object]", value)]
    if is_dataclass(value):
        return [row for field in fields(value) for row in list_rows(getattr(value, field.name))]
    if isinstance(value, tuple):
        return [row for part in cast("tuple[object, ...]", value) for row in list_rows(part)]
    return []


def check_damage(parse: Callable[[str], object], whole: str, damaged: str, *, lost: int) -> str:
    """Assert that damage costs at most so many rows, and that none is lost silently.

    Returns the odd rows, as text.
    """
    before = list_rows(parse(whole))
    seen = parse(damaged)
    after, odd = list_rows(seen), [*list_odd_rows(seen)]
    assert len(set(before) - set(after)) <= lost, (damaged[:300], after)
    assert len(after) + len(odd) * max(lost, 1) >= len(before), (
        f"a row is lost silently: {damaged[:300]}"
    )
    return "\n".join(each.text for each in odd)


def find_parser(name: str, given: Callable[[str], object] | None) -> Callable[[str], object]:
    if given:
        return given
    return (
        (lambda text: PARSERS[name](text, ["sda"]))
        if name == "block.parse_queues"
        else PARSERS[name]
    )


def test_every_parser_of_a_list_has_a_sample():
    known = {*SAMPLES, *DOCUMENTS, *XML, *NO_LISTS}
    assert PARSERS.keys() - known == set()
    assert known - PARSERS.keys() == set()


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_damaged_row_of_text_costs_only_itself(name: str):
    sample = SAMPLES[name]
    parse = find_parser(name, sample.parse)
    lines = sample.text.split("\n")
    places = [place for place, line in enumerate(lines) if re.fullmatch(sample.rows, line)]
    assert places, f"no line of the sample of {name} is a row"
    assert [*list_odd_rows(parse(sample.text))] == []
    for place in places[:3]:
        row = lines[place]
        indent = row[: len(row) - len(row.lstrip())]
        words = row.split()
        damages = [
            indent + FOREIGN,
            row[: max(1, len(row) // 2)],
            indent + " ".join(words[:-1]) if len(words) > 1 else indent + "?",
            indent + " ".join(["fnord", *words[1:]]),
            row + "x" * 20_000,
            row.replace(words[-1], "märchen"),
        ]
        for damage in damages:
            text = "\n".join([*lines[:place], damage, *lines[place + 1 :]])
            check_damage(parse, sample.text, text, lost=sample.row_count)
        if sample.foreign:
            text = "\n".join([*lines[:place], FOREIGN, *lines[place:]])
            odd = check_damage(parse, sample.text, text, lost=0)
            assert FOREIGN in odd or FOREIGN in str(list_rows(parse(text)))


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_damaged_row_of_a_document_costs_only_itself(name: str):
    document = DOCUMENTS[name]
    parse = find_parser(name, document.parse)
    assert [*list_odd_rows(parse(document.text))] == []
    damages: list[object] = [FOREIGN, None, 7, [], {"märchen": 1}, {"x": "y" * 20_000}]
    for damage in damages:
        whole = json.loads(document.text)
        rows: Any = whole
        for step in document.place:
            rows = rows[step]
        key: Any = 0 if isinstance(rows, list) else next(iter(cast("dict[str, Any]", rows)))
        rows[key] = damage
        odd = check_damage(parse, document.text, json.dumps(whole), lost=1 + _count_below(name))
        assert odd


def _count_below(name: str) -> int:
    """Return how many rows may be below one: partitions of a disk."""
    return 4 if name == "block_tree.parse_tree" else 0


@pytest.mark.parametrize("name", sorted(XML))
def test_damaged_object_of_xml_costs_only_itself(name: str):
    text, parse = XML[name], PARSERS[name]
    for known, damage in (
        ('basetype="drives" name="drive" oid="1"', 'name="drive"'),
        ('<PROPERTY name="durable-id">', "<PROPERTY>"),
        ('<OBJECT basetype="drives"', f'{FOREIGN}<OBJECT basetype="drives"'),
    ):
        assert known in text
        assert check_damage(parse, text, text.replace(known, damage, 1), lost=1)


def test_damage_that_is_lost_silently_is_noticed():
    with pytest.raises(AssertionError, match="lost silently"):
        check_damage(lambda text: Rows(text.split()), "a b", "a", lost=1)
    with pytest.raises(ParseError):
        check_damage(PARSERS["raid.parse_arrays"], "", "x", lost=0)
