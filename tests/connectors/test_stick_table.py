"""Parsers of stick tables, with recorded answers of HAProxy 2.6 and 3.2."""

import random
import string
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.errors import CommandError, ParseError
from connectors.stick_table import (
    InvalidKeyError,
    Rate,
    TableEntry,
    TableHead,
    format_key,
    parse_entry,
    parse_heads,
    parse_table,
)
from tests.connectors.understanding import is_understood

ANSWERS = Path(__file__).parent / "answers" / "haproxy"
VERSIONS = ("2.6", "3.2")

IP = TableHead("http", "ip", 100, 1)
IPV6 = TableHead("six", "ipv6", 100, 1)
INTEGER = TableHead("numbers", "integer", 100, 1)
STRING = TableHead("users", "string", 100, 1)
BINARY = TableHead("blobs", "binary", 100, 1)


def recorded(name: str) -> str:
    return (ANSWERS / f"{name}.txt").read_text()


@pytest.mark.parametrize("version", VERSIONS)
def test_haproxy_tables_are_listed_with_type_size_and_use(version: str):
    heads = parse_heads(recorded(f"{version}-tables"))
    assert len(heads) == 8
    assert heads[-1] == TableHead("http", "ip", 204800, 5)
    assert [head.type for head in heads[:6]] == ["ip", "ip", "binary", "integer", "string", "ipv6"]


def test_haproxy_without_tables_is_parsed_as_empty():
    assert parse_heads("\n") == ()


def test_haproxy_table_of_a_peers_section_has_a_slash_in_its_name():
    (head,) = parse_heads("# table: mypeers/t1, type: ip, size:1024, used:1\n\n")
    assert head.name == "mypeers/t1"


@pytest.mark.parametrize(("version", "shard"), [("2.6", None), ("3.2", 0)])
def test_haproxy_table_distinguishes_marked_clients_from_others(version: str, shard: int | None):
    table = parse_table(recorded(f"{version}-http"))
    marks = {entry.key: entry.counters["gpc0"] for entry in table.entries}
    assert marks == {
        "127.0.0.5": 0,
        "127.0.0.6": 0,
        "127.0.0.9": 1,
        "127.0.0.77": 1,
        "127.0.0.123": 1,
    }
    assert {entry.shard for entry in table.entries} == {shard}


@pytest.mark.parametrize("version", VERSIONS)
def test_filtered_haproxy_table_is_parsed(version: str):
    table = parse_table(recorded(f"{version}-marked"))
    assert table.head.used == 5
    assert {entry.key for entry in table.entries} == {"127.0.0.9", "127.0.0.77", "127.0.0.123"}


@pytest.mark.parametrize("version", VERSIONS)
def test_haproxy_rates_are_parsed_with_their_period(version: str):
    entries = {entry.key: entry for entry in parse_table(recorded(f"{version}-www")).entries}
    assert entries["127.0.0.9"].rates == {
        "conn_rate": Rate(43, 100_000),
        "bytes_out_rate": Rate(3234, 60_000),
    }
    assert entries["127.0.0.9"].counters == {}
    assert entries["127.0.0.9"].get_amount("conn_rate") == 43
    assert entries["127.0.0.9"].get_amount("gpc0") is None


@pytest.mark.parametrize("version", VERSIONS)
def test_haproxy_array_counters_are_named_as_printed(version: str):
    (entry,) = parse_table(recorded(f"{version}-arrays")).entries
    counters = {"gpt0": 0, "gpt1": 0, "gpt2": 0, "gpc0": 0, "gpc1": 0, "gpc2": 4, "gpc3": 0}
    assert entry.counters == counters
    assert entry.rates == {"gpc0_rate": Rate(0, 10_000), "gpc1_rate": Rate(0, 10_000)}


@pytest.mark.parametrize("version", VERSIONS)
def test_string_keys_of_a_haproxy_table_are_unescaped(version: str):
    keys = {entry.key for entry in parse_table(recorded(f"{version}-strings")).entries}
    assert keys == {"alice", "bob smith", "x=1 key=evil", "été"}


def test_string_key_of_a_haproxy_table_cannot_forge_other_fields():
    line = r"0x1: key=a\ use\=9\ exp\=0\\ use=0 exp=7 gpc0=1"
    (entry,) = parse_table(f"# table: t, type: string, size:9, used:1\n{line}\n\n").entries
    assert entry == TableEntry("a use=9 exp=0\\", 0, 7, counters={"gpc0": 1})


@pytest.mark.parametrize(
    ("printed", "meant"),
    [(rb"a\nb", "a\nb"), (rb"a\\b", "a\\b"), (rb"\xFF", r"\xff"), (rb"\e[0m", "\x1b[0m")],
)
def test_every_escape_in_a_haproxy_string_key_is_decoded(printed: bytes, meant: str):
    answer = (
        f"# table: t, type: string, size:9, used:1\n0x1: key={printed.decode()} use=0 exp=7\n\n"
    )
    assert parse_table(answer).entries[0].key == meant


def test_ipv6_keys_of_a_haproxy_table_are_normalised():
    keys = {entry.key for entry in parse_table(recorded("2.6-ipv6")).entries}
    assert keys == {"::102:304", str(ip_address("::ffff:192.0.2.2")), "2001:db8::9"}


def test_haproxy_table_value_that_is_no_number_is_kept_as_text():
    (entry,) = parse_table(recorded("2.6-integer")).entries
    assert (entry.key, entry.texts) == ("4294967295", {"server_key": "-"})


def test_binary_key_of_a_haproxy_table_is_kept_as_printed():
    (entry,) = parse_table(recorded("2.6-binary")).entries
    assert entry.key == "0B174CB07F00001F"


def test_haproxy_entry_in_use_has_a_use_count():
    entry = parse_entry(recorded("2.6-one-in-use"), "127.0.0.1")
    assert entry is not None
    assert entry.use_count == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_haproxy_entry_is_parsed_or_absent(version: str):
    assert parse_entry(recorded(f"{version}-absent"), "10.1.2.3") is None
    entry = parse_entry(recorded(f"{version}-one"), "127.0.0.9")
    assert entry is not None
    assert entry.counters == {"gpc0": 1}


def test_haproxy_entry_for_another_key_is_a_parse_error():
    with pytest.raises(ParseError, match=r"returned 127.* instead of 10\.9\.9\.9"):
        parse_entry(recorded("2.6-one"), "10.9.9.9")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("parse", [parse_table, partial(parse_entry, key="127.0.0.9")])
def test_haproxy_table_with_hidden_entries_names_the_operator_level(
    version: str, parse: Callable[[str], object]
):
    with pytest.raises(CommandError, match="level operator"):
        parse(recorded(f"{version}-hidden"))


@pytest.mark.parametrize("parse", [parse_heads, parse_table, partial(parse_entry, key="k")])
@pytest.mark.parametrize(
    "answer", ["", "No such table\n\n", "# a table\n\n", "0x1: key=\n\n", "x"]
)
def test_invalid_haproxy_table_is_not_understood(parse: Callable[[str], object], answer: str):
    assert not is_understood(lambda: parse(answer))


def test_empty_line_is_not_taken_for_a_haproxy_table():
    with pytest.raises(ParseError):
        parse_table("\n")


@pytest.mark.parametrize("version", VERSIONS)
def test_haproxy_table_cut_off_at_any_byte_is_a_parse_error(version: str):
    whole = recorded(f"{version}-http")
    for end in range(len(whole)):
        with pytest.raises(ParseError):
            parse_table(whole[:end])


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [
        (578_236, "for 9 min 39 s more"),
        (60_000, "for 1 min more"),
        (1, "for 1 s more"),
        (3_600_000, "for 1 h more"),
        (7_261_000, "for 2 h 1 min more"),
        (0, "until someone clears it"),
    ],
)
def test_expiry_of_a_haproxy_entry_is_formatted(milliseconds: int, words: str):
    assert TableEntry("203.0.113.9", 0, milliseconds).expiry == words


def test_expired_haproxy_entry_that_is_in_use_is_not_said_to_stay():
    """In a table with `expire 10m`, HAProxy prints `use=22 exp=0` once ten minutes are over."""
    entry = TableEntry("203.0.113.9", 22, 0)
    assert entry.expiry == "at least while connections use it"


@pytest.mark.parametrize(
    ("head", "key", "fit"),
    [
        (IP, "203.0.113.9", "203.0.113.9"),
        (IPV6, "2001:DB8:0:0::00ff", "2001:db8::ff"),
        (IPV6, "::1.2.3.4", "::102:304"),
        (INTEGER, "0", "0"),
        (INTEGER, "4294967295", "4294967295"),
        (STRING, "alice@example.com", "alice@example.com"),
    ],
)
def test_haproxy_key_is_normalised_for_its_table_type(head: TableHead, key: str, fit: str):
    assert format_key(head, key) == fit


@pytest.mark.parametrize(
    ("head", "key", "words"),
    [
        (IP, "203.0.113.9; disable server b/s1", "not an IPv4 address"),
        (IP, "203.0.113.9\ndisable server b/s1", "not an IPv4 address"),
        (IP, "203.0.113.9 ", "not an IPv4 address"),
        (IP, "::1", "not an IPv4 address"),
        (IP, "::ffff:192.0.2.2", "write it as 192.0.2.2"),
        (IP, "999.1.1.1", "not an IPv4 address"),
        (IP, "www.example.com", "not an IPv4 address"),
        (IP, "0x7f000001", "not an IPv4 address"),
        (IP, "010.0.0.1", "not an IPv4 address"),
        (IP, "203.0.113.9/32", "not an IPv4 address"),
        (IP, "10.1", "not an IPv4 address"),
        (IP, "1", "not an IPv4 address"),
        (IP, "-x", "not an IPv4 address"),
        (IP, "２０３.0.113.9", "not an IPv4 address"),
        (IP, "", "not an IPv4 address"),
        (IPV6, "203.0.113.9", "not an IPv6 address"),
        (IPV6, "fe80::1%eth0", "network card"),
        (IPV6, "fe80::1%; clear table http", "network card"),
        (IPV6, "::1 data.gpc0 0", "not an IPv6 address"),
        (INTEGER, "4294967296", "a whole number up to 4294967295"),
        (INTEGER, "-1", "a whole number"),
        (INTEGER, "007", "a whole number"),
        (INTEGER, "７", "a whole number"),
        (STRING, "bob smith", "blanks"),
        (STRING, "bob\\", "blanks"),
        (STRING, "a;b", "blanks"),
        (STRING, "<<", "blanks"),
        (STRING, "été", "blanks"),
        (STRING, "-x", "blanks"),
        (STRING, "", "blanks"),
        (STRING, "x" * 129, "blanks"),
        (BINARY, "0B17", "which HAProxy can only show"),
    ],
)
def test_haproxy_key_that_haproxy_would_misread_is_refused(head: TableHead, key: str, words: str):
    with pytest.raises(InvalidKeyError, match=words):
        format_key(head, key)


def _is_accepted(head: TableHead, key: str) -> bool:
    """Return whether the check accepts *key*, which must then be a safe word for the address."""
    try:
        fit = format_key(head, key)
    except InvalidKeyError:
        return False
    assert not set(fit) & set("; \\\r\n\0<%/")
    assert fit.isascii()
    assert ip_address(fit) == ip_address(key)
    return True


def test_haproxy_key_check_accepts_only_addresses_of_10000_random_keys():
    dice = random.Random(20231124)  # noqa: S311 - a seed makes a failure repeatable
    letters = string.hexdigits + string.punctuation + " \t\r\n\0٣３é"
    digits = "0123456789.:af/% ;x"
    passed = 0
    for number in range(10_000):
        kind = number % 4
        if kind == 0:
            key = "".join(dice.choices(letters, k=dice.randrange(40)))
        elif kind == 1:
            key = "".join(dice.choices(digits, k=dice.randrange(20)))
        elif kind == 2:
            key = ".".join(str(dice.randrange(300)) for _ in range(dice.choice((3, 4, 4, 4, 5))))
        else:
            key = ":".join(f"{dice.randrange(70000):x}" for _ in range(8))
            if dice.random() < 0.5:
                place = dice.randrange(len(key))
                key = key[:place] + dice.choice(letters) + key[place:]
        passed += _is_accepted(IP, key) + _is_accepted(IPV6, key)
    # Both outcomes are common, or else the dice would prove nothing.
    assert 1_000 < passed < 6_000


@given(st.text())
def test_haproxy_key_check_accepts_only_addresses_of_generated_texts(key: str):
    _is_accepted(IP, key)
    _is_accepted(IPV6, key)
