"""Files on their way into the workspace: announced, uploaded, then shared."""

import secrets
from dataclasses import dataclass, replace

from tests.slack_emulator.messages import SharedFile
from tests.slack_emulator.wire import SlackError

MOST_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Upload:
    """One announced file. `length` is what the bot said that it will send, in bytes."""

    file: SharedFile
    length: int
    key: str
    filled: bool = False
    shared: bool = False


class Uploads:
    """Every file of the workspace, by its id."""

    def __init__(self) -> None:
        self._by_id: dict[str, Upload] = {}

    def announce(self, name: str, length: int) -> Upload:
        if not name:
            raise SlackError("invalid_arguments", ["[ERROR] missing required field: filename"])
        if not 0 < length <= MOST_BYTES:
            raise SlackError("invalid_arguments", ["[ERROR] length must be 1 to 16 MiB"])
        file_id = "F" + secrets.token_hex(5).upper()
        upload = Upload(SharedFile(file_id, name, name, b""), length, secrets.token_urlsafe(24))
        self._by_id[file_id] = upload
        return upload

    def fill(self, key: str, content: bytes) -> int:
        """Take the bytes sent to an upload URL and return how many there are."""
        for upload in self._by_id.values():
            if upload.key == key and not upload.filled:
                file = replace(upload.file, content=content)
                self._by_id[file.file_id] = replace(upload, file=file, filled=True)
                return len(content)
        raise SlackError("invalid_url")

    def share(self, file_id: str, title: str) -> SharedFile:
        upload = self._by_id.get(file_id)
        if upload is None or not upload.filled or upload.shared:
            raise SlackError("file_not_found")
        file = replace(upload.file, title=title or upload.file.name)
        self._by_id[file_id] = replace(upload, file=file, shared=True)
        return file

    def file(self, file_id: str) -> SharedFile:
        try:
            return self._by_id[file_id].file
        except KeyError:
            raise SlackError("file_not_found") from None
