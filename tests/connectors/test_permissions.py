"""Permissions of files: others must not write them, and must not read secrets."""

import os
import subprocess
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from bot.model.keyfile import KeyFileError
from bot.model.signing import load_signing_key
from connectors.errors import SetupError
from connectors.key_file import load_key
from connectors.password import load_password
from connectors.permissions import (
    find_reader,
    find_writer,
    find_writer_above,
    list_trusted_owners,
    open_trusted_directory,
    open_trusted_entry,
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
    """Mount a world-writable directory read-only, as compose.yaml mounts the policy."""
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
def test_read_only_mount_of_a_directory_that_others_may_write_is_found(read_only: Path):
    """The same directory is writable on the machine that mounts it."""
    assert find_writer_above(read_only) == f"{read_only} is writable by others: chmod go-w it"
    assert find_writer(read_only) == f"{read_only} is writable by others: chmod go-w it"


@pytest.mark.parametrize("is_absolute", [True, False])
def test_directory_of_each_link_on_the_way_is_checked(tmp_path: Path, is_absolute: bool):
    """A link can be exchanged by those who may write its directory, and so can its target."""
    for name in ("first", "second", "third"):
        (tmp_path / name).mkdir(mode=0o755)
    file = tmp_path / "third" / "people.yaml"
    file.write_text("")
    file.chmod(0o644)
    up = tmp_path if is_absolute else Path("..")
    (tmp_path / "first" / "people.yaml").symlink_to(up / "second" / "people.yaml")
    (tmp_path / "second" / "people.yaml").symlink_to(up / "third" / "people.yaml")
    link = tmp_path / "first" / "people.yaml"
    assert find_writer_above(link) == ""
    for name in ("first", "second", "third"):
        (tmp_path / name).chmod(0o777)
        assert find_writer_above(link) == f"{tmp_path / name} is writable by others: chmod go-w it"
        (tmp_path / name).chmod(0o755)


def test_links_in_a_circle_are_an_error(tmp_path: Path):
    (tmp_path / "here").symlink_to("there")
    (tmp_path / "there").symlink_to("here")
    with pytest.raises(OSError, match="Too many levels"):
        find_writer_above(tmp_path / "here")


def test_trusted_directory_is_opened_and_links_in_it_are_refused(place: Path):
    owners = list_trusted_owners()
    (place / "file.py").write_text("")
    (place / "link.py").symlink_to("file.py")
    directory = open_trusted_directory(place, owners)
    try:
        os.close(open_trusted_entry(directory, place / "file.py", owners))
        with pytest.raises(PermissionError, match=r"link\.py is a symbolic link: put the file"):
            open_trusted_entry(directory, place / "link.py", owners)
        (place / "file.py").chmod(0o666)
        with pytest.raises(PermissionError, match=r"file\.py is writable by others"):
            open_trusted_entry(directory, place / "file.py", owners)
    finally:
        os.close(directory)
    place.parent.chmod(0o777)
    with pytest.raises(PermissionError, match="etc is writable by others"):
        open_trusted_directory(place, owners)


@_ROOT_ONLY
@pytest.mark.parametrize("load", [load_signing_key, load_key, load_password])
def test_key_that_another_user_owns_is_refused(tmp_path: Path, load: Callable[[Path], object]):
    """Its owner can read it, and put another in its place."""
    file = tmp_path / "some.key"
    file.write_text("")
    file.chmod(0o600)
    os.chown(file, 65534, 65534)
    with pytest.raises((KeyFileError, SetupError), match="belongs to another user"):
        load(file)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o660, 0o602])
def test_secrets_file_that_others_may_read_is_found(tmp_path: Path, mode: int):
    file = tmp_path / ".env"
    file.write_text("")
    file.chmod(mode)
    assert "chmod 600 it" in find_reader(file)
    file.chmod(0o600)
    assert find_reader(file) == ""
