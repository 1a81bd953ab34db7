"""The files of the policy directory are replaced whole, and stay what they were otherwise."""

import os
from pathlib import Path

import pytest

from bot.hosts.inventory_text import replace_file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "inventory.yaml"
    file.write_text("hosts: {}\n")
    return file


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_file_that_root_replaces_stays_readable_to_the_service(file: Path):
    os.chown(file, 12345, 54321)
    file.chmod(0o640)
    replace_file(file, "new\n")
    found = file.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (12345, 54321, 0o640)
    assert file.read_text() == "new\n"


def test_symbolic_link_stays_one(file: Path, tmp_path: Path):
    link = tmp_path / "policy" / "inventory.yaml"
    link.parent.mkdir()
    link.symlink_to(file)
    replace_file(link, "new\n")
    assert link.is_symlink()
    assert file.read_text() == "new\n"
    assert [one.name for one in link.parent.iterdir()] == ["inventory.yaml"]


def test_link_in_the_place_of_the_new_file_is_not_followed(file: Path, tmp_path: Path):
    """Where root writes into a directory of the service, that must not reach other files."""
    other = tmp_path / "other"
    other.write_text("untouched")
    (tmp_path / ".inventory.yaml.new").symlink_to(other)
    replace_file(file, "new\n")
    assert (file.read_text(), file.is_symlink()) == ("new\n", False)
    assert other.read_text() == "untouched"


def test_file_that_was_not_there_is_readable(tmp_path: Path):
    replace_file(tmp_path / "enrolling.yaml", "new\n")
    assert (tmp_path / "enrolling.yaml").stat().st_mode & 0o777 == 0o644
