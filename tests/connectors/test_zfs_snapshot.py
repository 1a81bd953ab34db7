"""Snapshots: an undo destroys exactly one, and never a dataset."""

import pytest

from connectors import zfs_snapshot
from connectors.errors import ParseError
from connectors.rows import Rows
from connectors.zfs_snapshot import Snapshots

FOR_ROOT = (
    zfs_snapshot.query_snapshots("tank/home"),
    zfs_snapshot.take_snapshot("tank/home", "before-upgrade"),
    zfs_snapshot.destroy_snapshot("tank", "2026-11-25_03:00"),
)


def test_only_snapshots_of_the_dataset_itself_are_listed():
    answer = "tank\ntank@a\ntank@b\ntank/home\ntank/home@c\n"
    assert zfs_snapshot.parse_snapshots(answer, "tank") == Snapshots("tank", Rows(["a", "b"]))


@pytest.mark.parametrize("answer", ["", "tank@a\n", "no datasets available\n"])
def test_snapshot_list_without_the_dataset_is_a_parse_error(answer: str):
    with pytest.raises(ParseError):
        zfs_snapshot.parse_snapshots(answer, "tank")


@pytest.mark.parametrize("name", ["", "a,b", "a%b", "%", "a b", "a@b", "a/b"])
def test_destroy_refuses_a_name_of_more_than_one_snapshot(name: str):
    with pytest.raises(ValueError, match="not the name of one snapshot"):
        zfs_snapshot.destroy_snapshot("tank", name)
