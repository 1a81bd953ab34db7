"""`make scan`: wapiti and sqlmap look for holes in the pages, signed in, and must find none."""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import httpx2

from tests.acceptance.visiting import Server
from tests.bot.office import an_office
from tests.bot.web.exhibits import gallery

# Every kind of attack that is about what we write ourselves. Its csrf asks for tokens in forms,
# where ours is what browsers say of a request's origin; and nothing here speaks LDAP.
_ATTACKS = (
    "crlf,csp,exec,file,http_headers,log4shell,methods,permanentxss,redirect,shellshock,sql,"
    "timesql,upload,xss,xxe"
)
# Doors that would end the scan itself.
_SPARED = ("/sign-out", "/sessions/end-all", "/sessions/*", "/stop*")
# On loopback there is no TLS, and so nothing to be strict about.
_EXPECTED = {"Strict-Transport-Security is not set"}
# Every filter of the pages that ask the database for what was typed.
_QUESTIONS = {
    "/runs": {"host": "lb1", "person": "dora", "runbook": "abusers clear", "words": "lamp"},
    "/log": {"host": "lb1", "person": "dora", "kind": "asked", "before": "9"},
    "/around": {"at": "02:00", "host": "lb*", "within": "45m"},
}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("tools", type=Path, help="the directory of wapiti and sqlmap")
    asked.add_argument("--minutes", type=int, default=20, help="for each of wapiti's halves")
    given = asked.parse_args()
    with tempfile.TemporaryDirectory() as name, an_office(Path(name)) as office:
        gallery(office.database)
        server = Server(office)
        try:
            cookie = _signed_in(server)
            found = [
                *_wapiti(given.tools, server.address, cookie, Path(name), given.minutes),
                *_sqlmap(given.tools, server.address, cookie, Path(name)),
            ]
        finally:
            server.stop()
    for line in found:
        sys.stderr.write(f"{line}\n")
    sys.stdout.write(f"{len(found)} findings\n")
    sys.exit(1 if found else 0)


def _signed_in(server: Server) -> str:
    with httpx2.Client(headers={"Origin": server.address}) as client:
        client.post(server.link("olga"))
        return "; ".join(f"{name}={value}" for name, value in client.cookies.items())


def _wapiti(tools: Path, address: str, cookie: str, place: Path, minutes: int) -> Iterator[str]:
    """Crawl from the first page, attack every form and every parameter."""
    report = place / "wapiti.json"
    command = [tools / "wapiti", "--url", f"{address}/", "--scope", "folder", "--no-bugreport"]
    command += ["--module", _ATTACKS, "--cookie-value", cookie, "--header", f"Origin: {address}"]
    command += ["--max-scan-time", str(60 * minutes)]
    # It looks around for so long, and then has a share of as much for each kind of attack.
    command += ["--max-attack-time", str(60 * minutes // len(_ATTACKS.split(",")))]
    command += ["--max-links-per-page", "40", "--max-files-per-dir", "8", "--tasks", "4"]
    command += ["--store-session", place, "--store-config", place, "--flush-session"]
    command += ["--format", "json", "--output", report]
    for spared in _SPARED:
        command += ["--exclude", f"{address}{spared}"]
    _say("wapiti")
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
    told = json.loads(report.read_text())
    for part in ("vulnerabilities", "anomalies"):
        for kind, faults in told[part].items():
            for fault in faults:
                if fault["info"] not in _EXPECTED:
                    yield f"wapiti: {kind}: {fault['method']} {fault['path']}: {fault['info']}"


def _sqlmap(tools: Path, address: str, cookie: str, place: Path) -> Iterator[str]:
    """Try every filter with every technique, for SQLite as for PostgreSQL."""
    for path, filters in _QUESTIONS.items():
        _say(f"sqlmap {path}")
        command = [tools / "sqlmap", "--url", f"{address}{path}?{urlencode(filters)}", "--batch"]
        command += ["--cookie", cookie, "--level", "2", "--risk", "2", "--technique", "BEUST"]
        command += ["--time-sec", "2", "--threads", "4", "--output-dir", place / "sqlmap"]
        command += ["--flush-session", "--disable-coloring", "-p", ",".join(filters)]
        said = subprocess.run(
            [str(word) for word in command], check=False, capture_output=True, text=True
        ).stdout
        if "all tested parameters do not appear to be injectable" not in said:
            yield f"sqlmap: {path}: {said[-2000:]}"


def _say(what: str) -> None:
    sys.stdout.write(f"{what} …\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
