import pytest

from connectors import haproxy_peers
from connectors.command import Answer, find_failure
from connectors.errors import ParseError
from connectors.haproxy import query_peers
from connectors.haproxy_peers import Peer, parse_peers
from tests.connectors.test_haproxy import recorded

SHARED = frozenset({"sess", "http", "mesh/t"})


@pytest.mark.parametrize(
    ("answer", "connected"), [("2.6-peers", True), ("2.6-peers-alone", False)]
)
def test_the_other_side_and_what_it_shares_is_read(answer: str, connected: bool):
    assert parse_peers(recorded(answer)) == (Peer("lb2", "mesh", connected, SHARED),)


def test_a_haproxy_without_peers_has_none():
    assert parse_peers("\n") == ()


def test_words_that_newer_ones_say_before_the_status_are_passed_over():
    newer = recorded("2.6-peers").replace(
        " last_status=", " app_state=RUNNING learn_state=NOTASSIGNED last_status="
    )
    assert parse_peers(newer) == parse_peers(recorded("2.6-peers"))


def test_two_sections_are_kept_apart():
    other = recorded("2.6-peers").replace("id=mesh ", "id=west ").replace("id=lb", "id=edge")
    both = parse_peers(recorded("2.6-peers").rstrip("\n") + "\n\n" + other)
    assert [(peer.name, peer.section) for peer in both] == [("lb2", "mesh"), ("edge2", "west")]


@pytest.mark.parametrize(
    "answer",
    ["what?\n\n", "  0x1: id=lb2(remote,active) addr=x last_status=ESTA \n", "# table: a"],
)
def test_what_is_not_known_is_never_no_one(answer: str):
    with pytest.raises(ParseError):
        parse_peers(answer)


@pytest.mark.parametrize("output", ["", "Permission denied\n\n", "Unknown command: show peers\n"])
def test_an_error_is_never_no_one(output: str):
    assert find_failure(query_peers().command, Answer(0, output), frozenset({0})) is not None


@pytest.mark.parametrize("answer", ["2.6-peers", "2.6-peers-alone"])
def test_an_answer_is_no_error(answer: str):
    assert find_failure(query_peers().command, Answer(0, recorded(answer)), frozenset({0})) is None


def test_a_table_that_no_one_else_has_needs_no_words():
    known = parse_peers(recorded("2.6-peers"))
    assert haproxy_peers.format_copies("www", haproxy_peers.list_sharing_peers("www", known)) == ()
    (words,) = haproxy_peers.format_copies("http", haproxy_peers.list_sharing_peers("http", known))
    assert words.startswith("lb2 has a copy of http")
