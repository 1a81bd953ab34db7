"""`make scan`: wapiti and sqlmap look for holes in pages and API, and must find none."""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import httpx2
from starlette.applications import Starlette
from starlette.types import ASGIApp

from bot.api.app import build_api
from bot.api.deps import ApiParts
from bot.features import load_routes
from bot.queries.banned_people import PolicyWithoutBanned
from tests.acceptance.browsing import Server
from tests.bot.api.conftest import API, FAST, SHORT
from tests.bot.harness import open_harness
from tests.bot.web.sample_runs import add_sample_runs

# Every kind of attack that is about what we write ourselves. Its csrf asks for tokens in forms,
# where ours is what browsers say of a request's origin; and nothing here speaks LDAP.
_ATTACKS = (
    "crlf,csp,exec,file,http_headers,log4shell,methods,permanentxss,redirect,shellshock,sql,"
    "timesql,upload,xss,xxe"
)
# Doors that would end the scan itself.
_SPARED = ("/sign-out", "/sessions/end-all", "/sessions/*", "/stop*")
_PARTS = ("pages", "api", "filters")
# On loopback there is no TLS, and so nothing to be strict about.
_EXPECTED = {"Strict-Transport-Security is not set"}
# Every filter that asks the database for what was typed.
_QUESTIONS = {
    "/runs": {"host": "lb1", "person": "dora", "runbook": "abusers clear", "words": "lamp"},
    "/changelog": {"host": "lb1", "person": "dora", "kind": "requested", "before": "9"},
    "/changes": {"at": "02:00", "host": "lb*", "within": "45m"},
    f"{API}/runs": {"host": "lb1", "person": "dora", "area": "edge", "text": "lamp"},
    f"{API}/log": {"host": "lb1", "person": "dora", "kind": "requested", "text": "lamp"},
    f"{API}/changes": {"host": "lb*", "within": "45m"},
}


class Everything(Server):
    """The pages, and the API beside them, as one service has them."""

    def app(self) -> ASGIApp:
        harness = self.harness
        admitted = PolicyWithoutBanned(harness.policies, harness.database)
        programs = ApiParts(
            harness.service,
            harness.database,
            admitted,
            self.address,
            FAST,
            longest_wait=SHORT,
            routers=load_routes(),
        )
        app = Starlette()
        app.mount(API, build_api(programs))
        app.mount("/", super().app())
        return app


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("tools", type=Path, help="the directory of wapiti and sqlmap")
    asked.add_argument("--minutes", type=int, default=20, help="for each of wapiti's halves")
    asked.add_argument("--only", nargs="+", choices=_PARTS, default=_PARTS)
    given = asked.parse_args()
    with tempfile.TemporaryDirectory() as name, open_harness(Path(name)) as harness:
        add_sample_runs(harness.database)
        server = Everything(harness)
        try:
            scan = _Scan(
                given.tools, server.address, _signed_in(server), Path(name), 60 * given.minutes
            )
            parts = {"pages": scan.pages, "api": scan.api, "filters": scan.filters}
            faults = [fault for part in given.only for fault in parts[part]()]
        finally:
            server.stop()
    for line in faults:
        sys.stderr.write(f"{line}\n")
    sys.stdout.write(f"{len(faults)} findings\n")
    sys.exit(1 if faults else 0)


def _signed_in(server: Server) -> tuple[str, str]:
    """Return what a browser is known by, and what a program is."""
    with httpx2.Client(headers={"Origin": server.address}) as client:
        client.post(server.link("olga"))
        cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    tokens = server.harness.service.tokens
    token = tokens.create_token(
        person="olga", scopes=("request", "approve"), days=1, source="cli"
    )[1]
    return cookie, f"Authorization: Bearer {token}"


@dataclass(frozen=True)
class _Scan:
    """What is scanned. known: the cookie of a browser, and the header of a program."""

    tools: Path
    address: str
    known: tuple[str, str]
    place: Path
    seconds: int

    def pages(self) -> Iterator[str]:
        """Crawl from the first page, attack every form and every parameter."""
        spared = [word for path in _SPARED for word in ("--exclude", f"{self.address}{path}")]
        words = ["--cookie-value", self.known[0], "--max-links-per-page", "40", *spared]
        words += ["--max-files-per-dir", "8"]
        return self._wapiti("pages", f"{self.address}/", words)

    def api(self) -> Iterator[str]:
        """Attack every operation that the API's own description tells of."""
        described = f"{self.address}{API}/openapi.json"
        words = ["--header", self.known[1], "--swagger", described]
        return self._wapiti("api", f"{self.address}{API}/", words)

    def filters(self) -> Iterator[str]:
        """Try every filter with every technique, for SQLite as for PostgreSQL."""
        for path, filters in _QUESTIONS.items():
            _say(f"sqlmap {path}")
            url = f"{self.address}{path}?{urlencode(filters)}"
            command = [self.tools / "sqlmap", "--url", url, "--batch", "-p", ",".join(filters)]
            cookie, bearer = self.known
            command += ["--headers", bearer] if path.startswith(API) else ["--cookie", cookie]
            command += ["--level", "2", "--risk", "2", "--technique", "BEUST", "--time-sec", "2"]
            command += ["--threads", "4", "--output-dir", self.place / "sqlmap"]
            command += ["--flush-session", "--disable-coloring"]
            output = subprocess.run(
                [str(word) for word in command], check=False, capture_output=True, text=True
            ).stdout
            if "all tested parameters do not appear to be injectable" not in output:
                yield f"sqlmap: {path}: {output[-2000:]}"

    def _wapiti(self, name: str, url: str, words: Sequence[str]) -> Iterator[str]:
        report = self.place / f"{name}.json"
        command = [self.tools / "wapiti", "--url", url, "--scope", "folder", "--no-bugreport"]
        command += ["--module", _ATTACKS, "--header", f"Origin: {self.address}", *words]
        # It looks around for so long, and then has a share of as much for each kind of attack.
        command += ["--max-scan-time", str(self.seconds)]
        command += ["--max-attack-time", str(self.seconds // len(_ATTACKS.split(",")))]
        command += ["--tasks", "4", "--flush-session", "--store-session", self.place / name]
        command += ["--store-config", self.place, "--format", "json", "--output", report]
        _say(f"wapiti: {name}")
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
        results = json.loads(report.read_text())
        _say(f"wapiti: {name}: {results['infos'].get('crawled_pages_nbr')} addresses were tried")
        for part in ("vulnerabilities", "anomalies"):
            for kind, faults in results[part].items():
                for fault in faults:
                    if fault["info"] not in _EXPECTED:
                        yield f"wapiti: {kind}: {fault['method']} {fault['path']}: {fault['info']}"


def _say(what: str) -> None:
    sys.stdout.write(f"{what} …\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
