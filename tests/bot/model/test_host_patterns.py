"""Host patterns: the hosts that one matches, and the shortest pattern for some hosts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.model import host_patterns

HOSTS = {
    "lb1": {"haproxy"},
    "lb2": {"haproxy"},
    "nas1": {"zfs"},
    "web1": {"nginx", "haproxy"},
}


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("lb1", ["lb1"]),
        ("lb*", ["lb1", "lb2"]),
        ("?b?", ["lb1", "lb2"]),
        ("@haproxy", ["lb1", "lb2", "web1"]),
        ("web1,lb*", ["web1", "lb1", "lb2"]),
        ("lb1, @zfs", ["lb1", "nas1"]),
        ("lb9", []),
        ("@none", []),
    ],
)
def test_host_pattern_resolves_names_wildcards_and_tags(word: str, meant: list[str]):
    assert [
        name
        for part in host_patterns.split_host_parts(word)
        for name in host_patterns.resolve_host_part(part, HOSTS)
    ] == meant


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (["lb1", "lb2"], ["lb*"]),
        (["lb1"], ["lb1"]),
        (["lb1", "lb2", "web1"], ["lb*,web1"]),
        (["lb2", "nas1"], ["lb2,nas1"]),
        (list(HOSTS), ["lb*,nas1,web1"]),
    ],
)
def test_host_names_are_shortened_to_a_pattern(wanted: list[str], words: list[str]):
    assert host_patterns.shorten_host_names(wanted, HOSTS, max_length=100) == words


names = st.text("ab1", min_size=1, max_size=4)


@given(known=st.sets(names, min_size=1, max_size=12), data=st.data())
def test_shortened_host_pattern_matches_only_its_hosts(known: set[str], data: st.DataObject):
    wanted = data.draw(st.sets(st.sampled_from(sorted(known)), min_size=1))
    pattern = host_patterns.shorten_host_names(wanted, known, max_length=9)
    untagged = dict.fromkeys(known, frozenset[str]())
    parts = [part for word in pattern for part in host_patterns.split_host_parts(word)]
    meant = [name for part in parts for name in host_patterns.resolve_host_part(part, untagged)]
    assert sorted(meant) == sorted(wanted)
    assert all(len(word) <= 9 for word in pattern)
