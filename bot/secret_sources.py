"""Where a secret of the settings can come from: a file, or the KV engine of OpenBao or Vault."""

import json
import os
import ssl
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import SplitResult, quote, urlsplit

from connectors.public_addresses import is_encrypted_or_local

_FILE, _VAULT = "file:", "vault:"
_TIMEOUT_SECONDS = 10
_MAX_BYTES = 1_000_000


def find_secret_file(given: str) -> Path | None:
    """Return the file that `file:PATH` names; None for any other value."""
    return Path(given.removeprefix(_FILE)) if given.startswith(_FILE) else None


def resolve_secret(given: str) -> str:
    """Return the secret that a value names, or the value itself.

    `file:PATH` is the content of a file without the line break at its end, and
    `vault:MOUNT/PATH#KEY` a key of a secret of the KV engine, version 2. Raises ValueError, whose
    message says what is wrong and never has a secret.
    """
    if (file := find_secret_file(given)) is not None:
        return _read_file(file)
    return _read_vault(given.removeprefix(_VAULT)) if given.startswith(_VAULT) else given


def _read_file(file: Path) -> str:
    if not file.is_absolute():
        raise ValueError(f"file:{file} must be an absolute path, such as file:/etc/keyturn/token")
    try:
        secret = file.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise ValueError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{file} is not UTF-8 text") from None
    if not secret:
        raise ValueError(f"{file} is empty")
    return secret


def _read_vault(place: str) -> str:
    path, _, key = place.partition("#")
    mount, _, rest = path.partition("/")
    if not (mount and rest and key):
        raise ValueError(
            f"vault:{place} must be vault:MOUNT/PATH#KEY, such as vault:secret/keyturn#token"
        )
    address = os.environ.get("VAULT_ADDR", "").rstrip("/")
    parts = _split_address(address)
    if not is_encrypted_or_local(parts):
        raise ValueError(
            f"vault:{place} needs VAULT_ADDR: https://…, or http:// for an address of this machine"
        )
    status, body = _get(parts, f"/v1/{quote(mount)}/data/{quote(rest)}")
    if status != HTTPStatus.OK:
        advice = _ADVICE.get(status, "check VAULT_ADDR")
        raise ValueError(f"{address} answers {status} for {path}: {advice}")
    try:
        found = json.loads(body)["data"]["data"][key]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} at {address} has no key {key} (KV version 2)") from None
    if not (isinstance(found, str) and found):
        raise ValueError(f"{key} of {path} at {address} is not text")
    return found


def _split_address(address: str) -> SplitResult:
    try:
        parts = urlsplit(address)
        if parts.port != 0 and "@" not in parts.netloc:
            return parts
    except ValueError:
        pass
    raise ValueError("VAULT_ADDR must be an address such as https://vault.example.com:8200")


_ADVICE = {
    403: "the token may not read it, or has expired",
    404: "there is no such secret, or the engine is not KV version 2",
    503: "it is sealed",
}


def _get(address: SplitResult, path: str) -> tuple[int, bytes]:
    """Return status and body. Neither redirects nor proxies are followed: the token stays here."""
    place, token = (address.hostname or "", address.port), _read_token()
    connection = (
        HTTPSConnection(*place, timeout=_TIMEOUT_SECONDS, context=_create_context())
        if address.scheme == "https"
        else HTTPConnection(*place, timeout=_TIMEOUT_SECONDS)
    )
    try:
        with closing(connection):
            connection.request("GET", address.path + path, headers={"X-Vault-Token": token})
            answer = connection.getresponse()
            return answer.status, answer.read(_MAX_BYTES)
    except (OSError, HTTPException) as error:
        raise ValueError(f"{address.geturl()} does not answer: {error}") from None


def _create_context() -> ssl.SSLContext:
    file = os.environ.get("VAULT_CACERT") or None
    try:
        return ssl.create_default_context(cafile=file)
    except OSError as error:
        raise ValueError(
            f"VAULT_CACERT: cannot read certificates in PEM of {file}: {error.strerror}"
        ) from None


def _read_token() -> str:
    file = os.environ.get("VAULT_TOKEN_FILE", "")
    token = os.environ.get("VAULT_TOKEN", "")
    if not (token or file):
        raise ValueError("set VAULT_TOKEN_FILE to the file with a token, such as an agent writes")
    token = token or _read_file(Path(file))
    # A header cannot have any other character, and what refuses one would show the token.
    if not (token.isascii() and token.isprintable()):
        place = "VAULT_TOKEN" if os.environ.get("VAULT_TOKEN") else file
        raise ValueError(f"{place} is not a token alone, in one line of ASCII characters")
    return token
