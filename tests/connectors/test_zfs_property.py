"""Properties of datasets: valid values, and the source of a value."""

from pathlib import Path

import pytest

from connectors import zfs_property
from connectors.command import Answer, find_failure
from connectors.errors import ParseError
from connectors.zfs_property import (
    InvalidValueError,
    PropertyName,
    ZfsProperty,
    refuse_invalid_value,
)

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
        *(("quota", value) for value in ("none", "500G", "10485760")),
        ("refquota", "2T"),
        ("sharenfs", "rw=@192.0.2.0/24"),
        ("sharenfs", "rw=192.0.2.1:web1:web2.example.org,no_subtree_check,anonuid=65534"),
        ("sharenfs", "ro=[2001:db8::]/32:@192.0.2.0/24,rw=[2001:db8::7]"),
    ],
)
def test_valid_zfs_property_value_is_accepted(name: PropertyName, value: str):
    assert refuse_invalid_value(name, value) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("sync", value) for value in ("", "on", "Always", "always ", "always\n", "disabled;")),
        *(("atime", value) for value in ("", "yes", "on tank/home", "on,off", "ON")),
        *(("compression", value) for value in ("", "gzip-0", "gzip-10", "zstd-0", "zstd-20")),
        *(("compression", value) for value in ("lz4 -r", "zstd-fast-11", "gzip-٣", "lz4=on")),
        *(("quota", value) for value in ("", "0", "1.5T", "-1", "10 G", "10GB", "all")),
        *(("sharenfs", value) for value in ("", ",", "on,rw", "rw,", "root", "exec", "sec=none")),
        *(("sharenfs", value) for value in ("rw=", "rw=*", "rw=:", "rw=a:", "rw=a::b", "rw=@")),
        *(("sharenfs", value) for value in ("rw=999.1.1.1", "rw=@10.0.0.0/33", "rw=@web1")),
        *(("sharenfs", value) for value in ("rw=a b", "rw=a;b", "rw=$(id)", "rw=`id`", "rw=a|b")),
        *(("sharenfs", value) for value in ("rw=a\nb", "rw=a'b", 'rw=a"b', "rw=../etc", "rw=-x")),
        *(("sharenfs", value) for value in ("rw=[fe80::1%eth0]", "rw=2001:db8::1", "rw=[::1")),
        *(("sharenfs", value) for value in ("rw=wеb", "fsid=root", "anonuid=-1", "crossmnt=on")),
    ],
)
def test_invalid_zfs_property_value_is_refused(name: PropertyName, value: str):
    with pytest.raises(InvalidValueError):
        refuse_invalid_value(name, value)


@pytest.mark.parametrize(
    ("answer", "understood"),
    [
        ("local", ZfsProperty("tank", "compression", "gzip-3", "local")),
        ("inherited", ZfsProperty("tank/home", "compression", "gzip-3", "inherited", "tank")),
        ("default", ZfsProperty("tank/home", "atime", "on", "default")),
        ("none", ZfsProperty("tank/home@a", "sharenfs", "-", "none")),
    ],
)
def test_zfs_property_is_parsed_with_its_source(answer: str, understood: ZfsProperty):
    assert zfs_property.parse_property((ANSWERS / f"fuse-{answer}.txt").read_text()) == understood


@pytest.mark.parametrize(
    "answer", ["", "tank\tatime\ton\n", "tank\tatime\ton\tlocal", "tank\tatime\ton\tsomewhere\n"]
)
def test_invalid_zfs_property_answer_is_a_parse_error(answer: str):
    with pytest.raises(ParseError):
        zfs_property.parse_property(answer)


@pytest.mark.parametrize(
    ("was", "words"),
    [
        (ZfsProperty("tank", "atime", "on", "local"), "zfs set atime=on tank"),
        (ZfsProperty("tank", "atime", "on", "default"), "zfs inherit atime tank"),
        (ZfsProperty("tank/a", "atime", "on", "inherited", "tank"), "zfs inherit atime tank/a"),
        (ZfsProperty("tank", "atime", "on", "received"), "zfs inherit -S atime tank"),
        (ZfsProperty("tank", "quota", "none", "local"), "zfs set quota=none tank"),
    ],
)
def test_undo_of_a_zfs_property_restores_value_and_source(was: ZfsProperty, words: str):
    assert str(zfs_property.restore_property(was)) == words


@pytest.mark.parametrize(
    ("output", "meaning"),
    [
        ("cannot open 'tank/a': dataset does not exist", "no such dataset"),
        ("bad property list: invalid property 'sync'", "too old for this property"),
        ("cannot set property for 'tank': 'compression' must be one of 'on | off'", "this value"),
        (
            "cannot share 'tank/home':  exportfs failed\n"
            "property may be set but unable to reshare filesystem",
            "the value is set, but",
        ),
        ("cannot set property for 'tank': permission denied", "this requires root"),
    ],
)
def test_zfs_set_errors_are_explained(output: str, meaning: str):
    command = zfs_property.set_property("tank", "atime", "on")
    assert meaning in str(find_failure(command, Answer(1, "", f"{output}\n"), frozenset({0})))


def test_zfs_quota_is_compared_in_bytes_and_parsed_with_used_space():
    answer = "tank/home\tquota\t10737418240\tlocal\ntank/home\tused\t21504\t-\n"
    quota = zfs_property.parse_property(answer)
    assert quota == ZfsProperty("tank/home", "quota", "10737418240", "local", used=21504)
    assert (quota.text, quota.has_value("10G"), quota.has_value("10240M")) == (
        "10 GiB",
        True,
        True,
    )
    none = zfs_property.parse_property(answer.replace("10737418240\tlocal", "0\tdefault"))
    assert (none.text, none.has_value("none"), none.has_value("10G")) == ("none", True, False)
    with pytest.raises(ParseError):
        zfs_property.parse_property(answer.partition("\n")[0] + "\n")
