"""Key files are written completely or not at all."""

import errno
import os
from pathlib import Path

import pytest

from bot.model import keyfile, signing


def _raise_disk_full(_descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_key_file_that_could_not_be_written_is_created_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Half a key would be one that somebody has to take away before anything begins."""
    file = tmp_path / "changelog.key"
    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", _raise_disk_full)
        with pytest.raises(OSError, match="No space left"):
            signing.load_signing_key(file)
    assert list(tmp_path.iterdir()) == []
    assert signing.load_signing_key(file).public_key == signing.load_signing_key(file).public_key
    assert [each.name for each in tmp_path.iterdir()] == [file.name]


def test_two_processes_that_create_a_key_file_at_once_use_the_same_key(tmp_path: Path):
    file = tmp_path / "key"

    def make() -> bytes:
        """Another process is quicker."""
        keyfile.load_or_create_key(file, lambda: b"theirs")
        return b"ours"

    assert keyfile.load_or_create_key(file, make) == b"theirs"


def test_existing_key_file_is_read_from_a_read_only_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As a secret that an orchestrator lays into the file system is."""
    file = tmp_path / "key"
    keyfile.load_or_create_key(file, lambda: b"ours")
    monkeypatch.setattr(os, "fsync", _raise_disk_full)
    assert keyfile.load_or_create_key(file, lambda: b"another") == b"ours"
