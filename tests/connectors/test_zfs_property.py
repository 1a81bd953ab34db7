"""What the properties of datasets may be set to, and where their values come from."""

from pathlib import Path

import pytest

from connectors import zfs_property
from connectors.command import Answer, failure
from connectors.trouble import NotUnderstood
from connectors.zfs_property import Property, PropertyName, Unfit, fit

ANSWERS = Path(__file__).parent / "answers" / "zfs"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("sync", value) for value in ("standard", "always", "disabled")),
        *(("atime", value) for value in ("on", "off")),
        *(("compression", value) for value in ("on", "off", "lz4", "lzjb", "zle", "gzip")),
        *(("compression", value) for value in ("gzip-1", "gzip-9", "zstd", "zstd-1", "zstd-19")),
        *(("compression", value) for value in ("zstd-fast", "zstd-fast-10", "zstd-fast-1000")),
        *(("sharenfs", value) for value in ("on", "off", "rw", "ro,crossmnt", "sec=sys:krb5p")),
        ("sharenfs", "rw=@192.0.2.0/24"),
        ("sharenfs", "rw=192.0.2.1:web1:web2.example.org,no_subtree_check,anonuid=65534"),
        ("sharenfs", "ro=[2001:db8::]/32:@192.0.2.0/24,rw=[2001:db8::7]"),
    ],
)
def test_what_fits_is_taken_as_it_is(name: PropertyName, value: str):
    assert fit(name, value) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("sync", value) for value in ("", "on", "Always", "always ", "always\n", "disabled;")),
        *(("atime", value) for value in ("", "yes", "on tank/home", "on,off", "ON")),
        *(("compression", value) for value in ("", "gzip-0", "gzip-10", "zstd-0", "zstd-20")),
        *(("compression", value) for value in ("lz4 -r", "zstd-fast-11", "gzip-٣", "lz4=on")),
        *(("sharenfs", value) for value in ("", ",", "on,rw", "rw,", "root", "exec", "sec=none")),
        *(("sharenfs", value) for value in ("rw=", "rw=*", "rw=:", "rw=a:", "rw=a::b", "rw=@")),
        *(("sharenfs", value) for value in ("rw=999.1.1.1", "rw=@10.0.0.0/33", "rw=@web1")),
        *(("sharenfs", value) for value in ("rw=a b", "rw=a;b", "rw=$(id)", "rw=`id`", "rw=a|b")),
        *(("sharenfs", value) for value in ("rw=a\nb", "rw=a'b", 'rw=a"b', "rw=../etc", "rw=-x")),
        *(("sharenfs", value) for value in ("rw=[fe80::1%eth0]", "rw=2001:db8::1", "rw=[::1")),
        *(("sharenfs", value) for value in ("rw=wеb", "fsid=root", "anonuid=-1", "crossmnt=on")),
    ],
)
def test_what_does_not_fit_is_refused(name: PropertyName, value: str):
    with pytest.raises(Unfit):
        fit(name, value)


@pytest.mark.parametrize(
    ("answer", "understood"),
    [
        ("local", Property("tank", "compression", "gzip-3", "local")),
        ("inherited", Property("tank/home", "compression", "gzip-3", "inherited", "tank")),
        ("default", Property("tank/home", "atime", "on", "default")),
        ("none", Property("tank/home@a", "sharenfs", "-", "none")),
    ],
)
def test_a_value_is_known_with_where_it_comes_from(answer: str, understood: Property):
    assert zfs_property.parse_property((ANSWERS / f"fuse-{answer}.txt").read_text()) == understood


@pytest.mark.parametrize(
    "answer", ["", "tank\tatime\ton\n", "tank\tatime\ton\tlocal", "tank\tatime\ton\tsomewhere\n"]
)
def test_what_is_not_understood_is_an_error(answer: str):
    with pytest.raises(NotUnderstood):
        zfs_property.parse_property(answer)


@pytest.mark.parametrize(
    ("was", "words"),
    [
        (Property("tank", "atime", "on", "local"), "zfs set atime=on tank"),
        (Property("tank", "atime", "on", "default"), "zfs inherit atime tank"),
        (Property("tank/a", "atime", "on", "inherited", "tank"), "zfs inherit atime tank/a"),
        (Property("tank", "atime", "on", "received"), "zfs inherit -S atime tank"),
    ],
)
def test_the_way_back_leads_to_where_the_value_came_from(was: Property, words: str):
    assert str(zfs_property.restore_property(was)) == words


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        ("cannot open 'tank/a': dataset does not exist", "no such dataset"),
        ("bad property list: invalid property 'sync'", "too old to know this property"),
        ("cannot set property for 'tank': 'compression' must be one of 'on | off'", "this value"),
        (
            "cannot share 'tank/home':  exportfs failed\n"
            "property may be set but unable to reshare filesystem",
            "the value is set now",
        ),
        ("cannot set property for 'tank': permission denied", "it needs root"),
    ],
)
def test_known_troubles_are_explained(said: str, meaning: str):
    command = zfs_property.set_property("tank", "atime", "on")
    assert meaning in str(failure(command, Answer(1, "", f"{said}\n"), frozenset({0})))
