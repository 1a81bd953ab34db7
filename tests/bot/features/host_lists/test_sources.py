"""Sources of hosts: NetBox over a real server, a command, and what they propose."""

import json
import threading
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from bot.audit import change_log, events
from bot.features.host_lists.actions import HostListActions
from bot.features.host_lists.sources import (
    HostSource,
    SourceError,
    load_sources,
    read_source,
)
from bot.features.host_lists.state import HostList, read_lists
from bot.features.host_lists.sync import HostSourceSync, check_host_lists, compute_proposal
from bot.features.host_lists.writing import write_confirmed_lists
from tests.bot.harness import Harness
from tests.playground.keys import make_key
from tests.policies import HOST_KEY

ANSWERS = Path(__file__).parent / "answers"
TOKEN = "0123456789abcdef0123456789abcdef01234567"
DEVICES, MACHINES = "/api/dcim/devices/", "/api/virtualization/virtual-machines/"
CA = make_key().public


@dataclass
class NetBox:
    """A NetBox that returns these records, in pages of at most `page`."""

    url: str = ""
    records: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {DEVICES: [], MACHINES: []}
    )
    page: int = 50
    status: int = 200
    broken: bytes | None = None
    asked: list[tuple[str, Mapping[str, list[str]]]] = field(default_factory=list[Any])
    tokens: set[str] = field(default_factory=set[str])
    grows: bool = False
    """Whether each page is answered from one record more."""

    def answer(self, path: str, query: Mapping[str, list[str]]) -> bytes:
        """Answer as NetBox's OptionalLimitOffsetPagination does."""
        if self.broken is not None:
            return self.broken
        if self.grows:
            self.records[path].append(make_device(1000 + len(self.records[path])))
        records = self.records[path]
        limit = min(int(query["limit"][0]), self.page)
        offset = int(query["offset"][0])
        shown = records[offset : offset + limit]
        following = f"http://netbox.invalid{path}?limit={limit}&offset={offset + limit}"
        return json.dumps(
            {
                "count": len(records),
                "next": following if offset + limit < len(records) else None,
                "previous": None,
                "results": shown,
            }
        ).encode()


def make_device(number: int, *, name: str | None = "", **fields: Any) -> dict[str, Any]:
    """Return a device as NetBox's DeviceSerializer does, with the fields that are read."""
    return {
        "id": number,
        "name": f"web{number}" if name == "" else name,
        "role": {"id": 1, "name": "Web server", "slug": "web-server"},
        "site": {"id": 1, "name": "Main", "slug": "main"},
        "tenant": None,
        "status": {"value": "active", "label": "Active"},
        "primary_ip": {
            "id": number,
            "family": {"value": 4, "label": "IPv4"},
            "address": f"10.0.{number // 250}.{number % 250 + 1}/24",
        },
        "tags": [{"id": 1, "name": "nginx", "slug": "nginx", "color": "9e9e9e"}],
        **fields,
    }


@pytest.fixture
def netbox() -> Generator[NetBox]:
    state = NetBox()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = parse_qs(parts.query)
            state.asked.append((parts.path, query))
            state.tokens.add(self.headers["Authorization"])
            body = state.answer(parts.path, query)
            self.send_response(state.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "netbox.token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o600)
    return file


def make_source(netbox: NetBox, token: Path, **fields: Any) -> HostSource:
    given: dict[str, Any] = {"area": "web", "host_ca": CA, "private": True, **fields}
    return HostSource(
        name="netbox",
        netbox=netbox.url,
        token=f"file:{token}",
        filter={"status": "active"},
        **given,
    )


def test_answer_in_the_shape_of_netbox_is_read(netbox: NetBox, token: Path):
    """See answers/README.md for what it was written after."""
    page = json.loads((ANSWERS / "netbox-devices.json").read_text())
    netbox.records[DEVICES] = page["results"]
    reading = read_source(make_source(netbox, token, area=None, areas={"core": "edge"}))
    assert [*reading.hosts] == ["edge-rtr1"]
    assert reading.hosts["edge-rtr1"].fields == {
        "address": "192.0.2.10",
        "port": 22,
        "area": "edge",
        "tags": ["acme", "bgp", "core", "fra1"],
    }
    assert reading.remarks == ["a host without a name: this name cannot be one of the inventory"]


def test_500_hosts_are_read_page_by_page_and_only_from_the_address_of_the_file(
    netbox: NetBox, token: Path
):
    netbox.records[DEVICES] = [make_device(n) for n in range(1, 401)]
    netbox.records[MACHINES] = [make_device(n, name=f"vm{n}") for n in range(401, 501)]
    reading = read_source(make_source(netbox, token))
    assert len(reading.hosts) == 500
    assert netbox.tokens == {f"Token {TOKEN}"}
    offsets = [query["offset"][0] for path, query in netbox.asked if path == DEVICES]
    assert offsets == [str(n) for n in range(0, 400, 50)]
    assert all(query["status"] == ["active"] for _, query in netbox.asked)
    assert all(query["ordering"] == ["id"] for _, query in netbox.asked)


def test_token_of_the_second_version_is_a_bearer_token(netbox: NetBox, token: Path):
    token.write_text("nbt_abc.def")
    netbox.records[DEVICES] = [make_device(1)]
    read_source(make_source(netbox, token))
    assert netbox.tokens == {"Bearer nbt_abc.def"}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"status": 403}, "status 403"),
        ({"status": 302}, "status 302"),
        ({"broken": b"<html>"}, "did not return JSON"),
        ({"broken": b"[]"}, "did not return a list"),
        ({"broken": b"{}"}, "not a list as NetBox returns it"),
        ({"broken": b'{"count": 3, "results": []}'}, "returned 0 of 3 records"),
        ({"broken": b'{"count": 2, "results": [{"id": 1}, {"id": 1}]}'}, "1 of 2 records"),
        ({"broken": b'{"count": 0, "results": []}'}, "no hosts"),
        ({"broken": b'{"count": 1, "results": [{"id": 1, "role": 3}]}'}, "record 1 is not"),
        ({"broken": b'{"count": 1e999, "results": []}'}, "not a list as NetBox returns it"),
        ({"broken": b'{"count": 1, "results": [{"id": 1e999}]}'}, "not a list as NetBox"),
        ({"grows": True, "page": 1}, "changed while it was read"),
    ],
)
def test_answer_that_is_empty_half_or_none_is_an_error(
    netbox: NetBox, token: Path, changed: Mapping[str, Any], says: str
):
    netbox.records[DEVICES] = [make_device(n) for n in range(1, 4)]
    for name, value in changed.items():
        setattr(netbox, name, value)
    with pytest.raises(SourceError) as raised:
        read_source(make_source(netbox, token))
    assert says in str(raised.value)
    assert TOKEN not in str(raised.value)


@pytest.mark.parametrize(
    "name",
    ["web1; reboot", "-oProxyCommand=x", "../../etc", "web1\n", "\u202eweb", "\ud800", "", None],
)
def test_hostile_name_is_left_out_and_said(netbox: NetBox, token: Path, name: str | None):
    netbox.records[DEVICES] = [make_device(1), {**make_device(2), "name": name}]
    reading = read_source(make_source(netbox, token))
    assert [*reading.hosts] == ["web1"]
    assert len(reading.remarks) == 1
    assert reading.remarks[0].isprintable()


def test_two_names_that_would_be_one_are_both_left_out(netbox: NetBox, token: Path):
    netbox.records[DEVICES] = [
        make_device(1, name="web.1"),
        make_device(2, name="WEB-1"),
        make_device(3),
    ]
    reading = read_source(make_source(netbox, token))
    assert [*reading.hosts] == ["web3"]
    assert len(reading.remarks) == 2


def test_host_at_the_address_of_another_is_left_out_and_the_others_are_proposed(
    harness: Harness, netbox: NetBox, token: Path, tmp_path: Path
):
    address = make_device(10)["primary_ip"]
    twin = make_device(11, primary_ip=address)
    netbox.records[DEVICES] = [make_device(10), twin, make_device(12)]
    name_keys_of_single_hosts(harness)
    make_sync(harness, write_sources(tmp_path, netbox, token)).run()
    [found] = list_lists(harness)
    assert [one.name for one in found.changes] == ["web10", "web12"]
    with harness.database.reading() as tx:
        [read] = change_log.list_entries_since(tx, events.HostSourceRead.kind, 0)
    assert read.event.get_fact("remarks") == ("web11: web10 has its address and port already",)


def make_sync(harness: Harness, file: Path) -> HostSourceSync:
    return HostSourceSync(harness.database, harness.policies, harness.policies.path, file)


def write_sources(directory: Path, netbox: NetBox, token: Path, more: str = "") -> Path:
    file = directory / "sources.yaml"
    file.write_text(
        f"sources:\n  netbox:\n    netbox: {netbox.url}\n    token: file:{token}\n"
        f"    private: true\n    every: 1\n    area: web\n    host_ca: {CA}\n{more}"
    )
    return file


def list_lists(harness: Harness) -> list[HostList]:
    with harness.database.reading() as tx:
        return list(read_lists(tx))


def confirm(harness: Harness, one: HostList, *people: str) -> None:
    for person in people:
        harness.service.bind(HostListActions).confirm(one.number, person=person, digest=one.digest)


def let_adam_own_web(harness: Harness) -> None:
    areas = harness.policies.path / "areas.yaml"
    areas.write_text(
        areas.read_text().replace("servers, owners: [olga]", "servers, owners: [olga, adam]")
    )


def name_keys_of_single_hosts(harness: Harness) -> None:
    """Set the host key in each entry, so that new hosts can have a CA instead."""
    file = harness.policies.path / "inventory.yaml"
    key = f"host_key: {HOST_KEY}"
    text = file.read_text().replace(f"  {key}\n", "")
    file.write_text(text.replace("{area:", f"{{{key}, area:"))


def test_source_proposes_and_two_owners_decide(
    harness: Harness, netbox: NetBox, token: Path, tmp_path: Path
):
    let_adam_own_web(harness)
    name_keys_of_single_hosts(harness)
    netbox.records[DEVICES] = [make_device(n) for n in range(10, 22)]
    file = write_sources(tmp_path, netbox, token)
    make_sync(harness, file).run()
    [added] = list_lists(harness)
    assert (added.source, added.summary, added.missing) == ("netbox", "12 added", 2)
    # Another reading of the same proposes nothing more.
    make_sync(harness, file).run()
    assert len(list_lists(harness)) == 1
    confirm(harness, added, "olga")
    make_sync(harness, file).run()
    assert "web10" not in harness.policies.get_policy().inventory.hosts
    confirm(harness, added, "adam")
    sync = make_sync(harness, file)
    sync.run()
    inventory = harness.policies.get_policy().inventory
    assert inventory["web10"].source == "netbox"
    assert inventory["web10"].host_ca == CA
    assert not sync.describe_health().is_broken

    # A change of an address, and a host that is gone: proposed, and nothing is removed by itself.
    netbox.records[DEVICES][0]["primary_ip"]["address"] = "10.9.9.9/24"
    del netbox.records[DEVICES][-1]
    make_sync(harness, file).run()
    differing = list_lists(harness)[0]
    assert [(one.name, one.action) for one in differing.changes] == [
        ("web10", "change"),
        ("web21", "remove"),
    ]
    assert "web21" in harness.policies.get_policy().inventory.hosts
    confirm(harness, differing, "adam", "olga")
    assert write_confirmed_lists(harness.database, harness.policies, harness.policies.path) == {}
    inventory = harness.policies.get_policy().inventory
    assert "web21" not in inventory.hosts
    assert inventory["web10"].address == "10.9.9.9"


def test_list_that_changed_at_its_source_is_withdrawn_and_shown_again(
    harness: Harness, netbox: NetBox, token: Path, tmp_path: Path
):
    let_adam_own_web(harness)
    netbox.records[DEVICES] = [make_device(10)]
    file = write_sources(tmp_path, netbox, token)
    make_sync(harness, file).run()
    [first] = list_lists(harness)
    confirm(harness, first, "olga")
    netbox.records[DEVICES].append(make_device(11))
    make_sync(harness, file).run()
    newer, older = list_lists(harness)
    assert (older.state, newer.state, newer.confirmed_by) == ("withdrawn", "open", {})


def test_list_that_people_withdrew_is_not_proposed_again(
    harness: Harness, netbox: NetBox, token: Path, tmp_path: Path
):
    netbox.records[DEVICES] = [make_device(10)]
    file = write_sources(tmp_path, netbox, token)
    make_sync(harness, file).run()
    [first] = list_lists(harness)
    harness.service.bind(HostListActions).withdraw(first.number, person="olga", reason="a test")
    make_sync(harness, file).run()
    assert [one.state for one in list_lists(harness)] == ["withdrawn"]


def test_failing_source_is_a_finding_and_proposes_nothing(
    harness: Harness, netbox: NetBox, token: Path, tmp_path: Path
):
    netbox.records[DEVICES] = [make_device(10)]
    file = write_sources(tmp_path, netbox, token)
    netbox.status = 500
    sync = make_sync(harness, file)
    sync.run()
    assert sync.describe_health().is_broken
    assert list_lists(harness) == []
    policy = harness.policies.get_policy()
    with harness.database.reading() as tx:
        [result] = check_host_lists(tx, policy)
    assert (result.level, "status 500" in result.message) == ("error", True)
    netbox.status = 200
    make_sync(harness, file).run()
    with harness.database.reading() as tx:
        [result] = check_host_lists(tx, policy)
    assert (result.level, result.message) == ("ok", "netbox: 1 host")


def add_followed_hosts(harness: Harness, count: int) -> None:
    file = harness.policies.path / "inventory.yaml"
    more = "".join(
        f"  web{n}: {{area: web, address: 10.0.0.{n + 1}, source: netbox, "
        f"host_key: {make_key().public}}}\n"
        for n in range(10, 10 + count)
    )
    file.write_text(file.read_text() + more)


def test_answer_without_most_of_the_hosts_looks_like_half_of_it(
    harness: Harness, netbox: NetBox, token: Path
):
    add_followed_hosts(harness, 10)
    netbox.records[DEVICES] = [make_device(n) for n in range(10, 14)]
    source = make_source(netbox, token)
    with pytest.raises(SourceError, match="6 of its 10 hosts are missing"):
        compute_proposal(harness.policies.get_policy(), source, read_source(source))


def test_host_that_cannot_be_used_any_more_has_not_vanished(
    harness: Harness, netbox: NetBox, token: Path
):
    add_followed_hosts(harness, 2)
    netbox.records[DEVICES] = [make_device(10), make_device(11, primary_ip=None)]
    source = make_source(netbox, token)
    found = compute_proposal(harness.policies.get_policy(), source, read_source(source))
    removed = [one.name for group in found.lists for one in group if one.action == "remove"]
    assert removed == []
    assert "web11: it has no address" in found.remarks


def test_hosts_that_do_not_follow_the_source_are_left_alone(
    harness: Harness, netbox: NetBox, token: Path
):
    netbox.records[DEVICES] = [make_device(1), make_device(2, name="new2")]
    source = make_source(netbox, token, host_ca=None)
    found = compute_proposal(harness.policies.get_policy(), source, read_source(source))
    assert found.lists == []
    assert [remark.partition(":")[0] for remark in found.remarks] == ["web1", "new2"]
    assert "no `source`" in found.remarks[0]
    assert "its key is not known" in found.remarks[1]


def test_command_prints_what_ansible_inventory_prints(harness: Harness, tmp_path: Path):
    script = tmp_path / "list"
    printed = {
        "_meta": {"hostvars": {"db1.example.com": {"ansible_host": "10.0.0.7"}}},
        "all": {"children": ["db"]},
        "db": {"hosts": ["db1.example.com"]},
    }
    script.write_text(f"#!/bin/sh\ncat <<'E'\n{json.dumps(printed)}\nE\n")
    script.chmod(0o755)
    source = HostSource(name="cmd", command=[str(script)], areas={"db": "storage"}, host_ca=CA)
    found = compute_proposal(harness.policies.get_policy(), source, read_source(source))
    [[one]] = found.lists
    assert (one.name, one.action) == ("db1-example-com", "add")
    assert one.after == {
        "address": "10.0.0.7",
        "area": "storage",
        "tags": ["db"],
        "source": "cmd",
        "host_ca": CA,
    }


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("exit 3", "exited with 3"),
        ("echo oops >&2; exit 1", "oops"),
        ("echo '{'", "not the output of ansible-inventory"),
        ("printf '\\377'", "did not print UTF-8"),
        ("""echo '{"_meta": {"hostvars": {}}}'""", "no hosts"),
    ],
)
def test_command_that_fails_is_an_error(tmp_path: Path, body: str, says: str):
    script = tmp_path / "list"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    with pytest.raises(SourceError) as raised:
        read_source(HostSource(name="cmd", command=[str(script)], area="web"))
    assert says in str(raised.value)


def test_command_sees_no_secrets_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEYTURN_SLACK_BOT_TOKEN", "xoxb-secret")
    script = tmp_path / "list"
    script.write_text("#!/bin/sh\nenv >&2\nexit 1\n")
    script.chmod(0o755)
    with pytest.raises(SourceError) as raised:
        read_source(HostSource(name="cmd", command=[str(script)], area="web"))
    assert "xoxb" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sources: {a: {area: web}}", "set either command or netbox"),
        ("sources: {a: {command: [list], area: web}}", "absolute path"),
        ("sources: {a: {command: [/list]}}", "area"),
        (f"sources: {{a: {{netbox: 'https://x', token: {TOKEN}, area: web}}}}", "not the token"),
        ("sources: {a: {netbox: 'https://x', area: web}}", "netbox needs token"),
        (f"sources: {{a: {{netbox: 'https://a:{TOKEN}@x', area: web}}}}", "without a login"),
        ("sources: {a: {command: [/list], area: web, x: 1}}", "x"),
    ],
)
def test_file_of_sources_says_what_is_wrong(tmp_path: Path, text: str, says: str):
    file = tmp_path / "sources.yaml"
    file.write_text(text)
    with pytest.raises(SourceError) as raised:
        load_sources(file)
    assert says in str(raised.value)
    assert TOKEN not in str(raised.value)


def test_file_of_sources_that_others_can_write_is_refused(tmp_path: Path):
    file = tmp_path / "sources.yaml"
    file.write_text("sources: {}")
    file.chmod(0o666)
    with pytest.raises(SourceError, match="writable by others"):
        load_sources(file)
