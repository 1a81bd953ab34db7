"""Answers of real storage tools, recorded on Linux 6.1 (Debian 12) with SCSI and NVMe disks."""

from pathlib import Path

ANSWERS = Path(__file__).parent / "answers" / "storage"


def recorded(name: str) -> str:
    return (ANSWERS / f"{name}.txt").read_text()
