"""Permissions of files: others must not write them, and must not read secrets."""

import os
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from connectors.permissions import (
    find_reader,
    find_writer,
    find_writer_above,
    list_trusted_owners,
)

_ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can do so")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    directory = tmp_path / "etc" / "policy"
    directory.mkdir(parents=True)
    for one in (directory.parent, directory):
        one.chmod(0o755)
    return directory


@pytest.mark.parametrize("mode", [0o775, 0o777, 0o757, 0o722])
def test_directory_that_others_may_write_is_found(place: Path, mode: int):
    place.chmod(mode)
    assert find_writer(place) == f"{place} is writable by others: chmod go-w it"
    place.chmod(0o755)
    assert find_writer(place) == ""


@pytest.mark.parametrize("above", [0, 1])
def test_parent_directory_that_others_may_write_is_found(place: Path, above: int):
    wide = place.parents[above]
    wide.chmod(0o777)
    assert find_writer_above(place) == f"{wide} is writable by others: chmod go-w it"
    wide.chmod(0o1777)  # such as /tmp, where nobody renames what is not theirs
    assert find_writer_above(place) == ""


def test_sticky_bit_does_not_protect_a_file_that_others_may_write(place: Path):
    file = place / "people.yaml"
    file.write_text("")
    file.chmod(0o1666)
    assert "chmod go-w" in find_writer(file)


def test_symbolic_link_is_followed_when_write_permissions_are_checked(place: Path, tmp_path: Path):
    (tmp_path / "here").symlink_to(place)
    place.parent.chmod(0o777)
    assert str(place.parent) in find_writer_above(tmp_path / "here")


@_ROOT_ONLY
def test_directory_of_another_owner_is_found(place: Path):
    os.chown(place, 65534, 65534)
    assert "chown it" in find_writer(place, list_trusted_owners())
    assert find_writer(place) == ""


@pytest.fixture
def read_only(place: Path) -> Generator[Path]:
    """Mount a world-writable directory read-only, as Kubernetes mounts a ConfigMap."""
    place.chmod(0o777)
    try:
        subprocess.run(["mount", "--bind", place, place], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("nothing can be mounted here")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True, capture_output=True)
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


@_ROOT_ONLY
def test_read_only_mount_counts_as_not_writable_by_others(read_only: Path):
    assert find_writer_above(read_only, list_trusted_owners()) == ""


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o602])
def test_secrets_file_that_others_may_read_is_found(tmp_path: Path, mode: int):
    file = tmp_path / ".env"
    file.write_text("")
    file.chmod(mode)
    assert "chmod 600 it" in find_reader(file)
    file.chmod(0o600)
    assert find_reader(file) == ""
