"""The address of the service, and variables of libraries, from environment and settings file.

They are read without the other settings, whose validation takes longer than a command needs.
"""

import os
from pathlib import Path

from dotenv import dotenv_values

PREFIX = "KEYTURN_"
# The Debian package names its own.
SETTINGS_FILE = Path(os.environ.get(f"{PREFIX}SETTINGS") or ".env")
DEFAULT_LISTEN, DEFAULT_PORT = "127.0.0.1", 8080
# Variables that libraries and runbooks read from the environment themselves.
_LIBRARY_VARIABLES = frozenset(
    {"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "KEYTURN_RUNBOOKS"}
    | {"VAULT_ADDR", "VAULT_CACERT", "VAULT_TOKEN", "VAULT_TOKEN_FILE"}
)


def get_public_address(base_url: str, listen: str, port: int | str) -> str:
    """Return the address of the pages for people, without a slash at the end."""
    return (base_url or f"http://{listen}:{port}").rstrip("/")


def get_local_address(base_url: str, listen: str, port: int | str) -> str:
    """Return the address of the pages for this machine."""
    everywhere = not base_url and listen in {"0.0.0.0", "::"}  # noqa: S104 - compared
    return f"http://127.0.0.1:{port}" if everywhere else get_public_address(base_url, listen, port)


def read_local_address() -> str:
    """Return what Settings.here will be; "" if the port is no number."""
    given = {
        name.upper(): value or ""
        for source in (dotenv_values(SETTINGS_FILE), os.environ)
        for name, value in source.items()
    }
    base_url, listen, port = (given.get(PREFIX + name) for name in ("BASE_URL", "LISTEN", "PORT"))
    port = port or str(DEFAULT_PORT)
    if not port.isdecimal():
        return ""
    return get_local_address(base_url or "", listen or DEFAULT_LISTEN, port)


def export_library_variables() -> None:
    """Copy variables of libraries and runbooks from the settings file to the environment.

    Variables that the environment has already are kept.
    """
    for name, value in dotenv_values(SETTINGS_FILE).items():
        if value and (name.upper() in _LIBRARY_VARIABLES or name.startswith("OTEL_")):
            os.environ.setdefault(name, value)
