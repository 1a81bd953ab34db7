import pytest

from connectors import haproxy_peers
from connectors.command import Answer, find_failure
from connectors.haproxy import query_peers
from connectors.haproxy_peers import Peer, parse_peers
from connectors.rows import list_odd_rows
from tests.connectors.test_haproxy import recorded

SHARED = frozenset({"sess", "http", "mesh/t"})


@pytest.mark.parametrize(
    ("answer", "connected"), [("2.6-peers", True), ("2.6-peers-alone", False)]
)
def test_haproxy_peer_is_parsed_with_its_shared_tables(answer: str, connected: bool):
    assert parse_peers(recorded(answer)) == (Peer("lb2", "mesh", connected, SHARED),)


def test_haproxy_without_peers_is_parsed_as_empty():
    assert parse_peers("\n") == ()


def test_haproxy_peer_of_a_newer_version_is_parsed():
    newer = recorded("2.6-peers").replace(
        " last_status=", " app_state=RUNNING learn_state=NOTASSIGNED last_status="
    )
    assert parse_peers(newer) == parse_peers(recorded("2.6-peers"))


def test_haproxy_peers_of_two_sections_are_distinguished():
    other = recorded("2.6-peers").replace("id=mesh ", "id=west ").replace("id=lb", "id=edge")
    both = parse_peers(recorded("2.6-peers").rstrip("\n") + "\n\n" + other)
    assert [(peer.name, peer.section) for peer in both] == [("lb2", "mesh"), ("edge2", "west")]


@pytest.mark.parametrize(
    "answer",
    ["what?\n\n", "  0x1: id=lb2(remote,active) addr=x last_status=ESTA \n", "# table: a"],
)
def test_invalid_haproxy_peers_are_not_understood(answer: str):
    assert [*list_odd_rows(parse_peers(answer))]


@pytest.mark.parametrize("output", ["", "Permission denied\n\n", "Unknown command: show peers\n"])
def test_haproxy_peers_error_is_a_failure(output: str):
    assert find_failure(query_peers().command, Answer(0, output), frozenset({0})) is not None


@pytest.mark.parametrize("answer", ["2.6-peers", "2.6-peers-alone"])
def test_recorded_haproxy_peers_are_no_error(answer: str):
    assert find_failure(query_peers().command, Answer(0, recorded(answer)), frozenset({0})) is None


def test_haproxy_table_copies_are_named_only_when_a_peer_shares_them():
    known = parse_peers(recorded("2.6-peers"))
    assert haproxy_peers.format_copies("www", haproxy_peers.list_sharing_peers("www", known)) == ()
    (words,) = haproxy_peers.format_copies("http", haproxy_peers.list_sharing_peers("http", known))
    assert words.startswith("lb2 has a copy of http")
