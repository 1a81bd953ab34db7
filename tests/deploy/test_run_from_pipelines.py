"""The GitHub action and the Ansible module, run as GitHub and Ansible run them, on a service."""

import json
import os
import re
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from sqlalchemy import select

from bot.audit import change_log
from bot.db import runs, tables
from bot.model.run import Run, State
from tests.playground import sample_company
from tests.playground.fleet import LoopbackFleet, Place
from tests.playground.service import Service
from tests.playground.tls import create_certificate

ROOT = Path(__file__).parents[2]
ACTION = ROOT / "deploy" / "github-action"
MODULES = ROOT / "deploy" / "ansible" / "plugins" / "modules"
ABUSER = "203.0.113.9"
CLEAR = f"abusers clear lb1 {ABUSER}"
CHECK = "abusers tables lb1"

pytestmark = pytest.mark.real


@dataclass
class Result:
    """How a program ended, and what it said of the run."""

    succeeded: bool
    output: str
    facts: Mapping[str, Any]
    changed: bool | None = None


@dataclass
class Shop:
    """A service with one host, and people with tokens."""

    fleet: LoopbackFleet
    service: Service

    def create_token(self, person: str) -> str:
        tokens = self.service.keyturn.service.tokens
        return tokens.create_token(person=person, scopes=["request"], days=1, source="cli")[1]

    def list_runs(self) -> list[Run]:
        """Return all runs, newest first."""
        with self.service.keyturn.database.reading() as tx:
            numbers = tx.sql.execute(select(tables.run.c.id)).scalars()
            return sorted(runs.list_runs(tx, [*numbers]), key=lambda run: run.id, reverse=True)

    def decide_when_pending(self, decide: Callable[[Run], object]) -> threading.Thread:
        """Let an owner decide the next pending run."""

        def wait() -> None:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                for run in self.list_runs():
                    if run.state is State.PENDING:
                        decide(run)
                        return
                time.sleep(0.05)

        thread = threading.Thread(target=wait)
        thread.start()
        return thread

    def approve(self, run: Run) -> None:
        self.service.keyturn.service.approve_run(run.id, person="olga", digest=run.digest)

    def deny(self, run: Run) -> None:
        self.service.keyturn.service.deny_run(run.id, person="olga", reason="not during the sale")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Generator[Shop]:
    directory = tmp_path_factory.mktemp("shop")
    sample_company.create_policy(directory / "policy")
    places = (Place("lb1", "edge", ("haproxy",)),)
    with (
        LoopbackFleet(directory / "policy", places=places) as fleet,
        Service(directory, slack="") as service,
    ):
        yield Shop(fleet, service)


Start = Callable[..., Result]


def _run_action(directory: Path, url: str, token: str, **inputs: str) -> Result:
    """Run the step of the action as GitHub's runner does: with inputs for expressions."""
    action = YAML(typ="safe").load((ACTION / "action.yml").read_text())
    (step,) = action["runs"]["steps"]
    values = {name: str(one.get("default", "")) for name, one in action["inputs"].items()}
    values |= {"url": url, "token": token}
    values |= {name.replace("_", "-"): value for name, value in inputs.items()}
    assert all(values[name] for name, one in action["inputs"].items() if one.get("required"))
    github = {
        "server_url": "https://github.example",
        "repository": "shop/web",
        "run_id": "77",
    }

    def fill(text: str) -> str:
        text = re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: values[found[1]], text)
        return re.sub(r"\$\{\{ github\.(\w+) \}\}", lambda found: github[found[1]], text)

    script, outputs = directory / "script.sh", directory / "outputs"
    script.write_text(step["run"])
    outputs.touch()
    ended = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", script],
        env={
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "GITHUB_ACTION_PATH": str(ACTION),
            "GITHUB_OUTPUT": str(outputs),
            "GITHUB_JOB": "deploy",
            "SSL_CERT_FILE": os.environ.get("SSL_CERT_FILE", ""),
            **{f"GITHUB_{name.upper()}": value for name, value in github.items()},
            **{name: fill(fill(value)) for name, value in step["env"].items()},
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    facts = dict(line.split("=", 1) for line in outputs.read_text().splitlines())
    assert ended.stderr == ""
    errors = re.findall(r"(?m)^::error title=Keyturn::(.*)$", ended.stdout)
    assert len(errors) == (ended.returncode != 0)
    assert set(facts) <= set(action["outputs"])
    return Result(ended.returncode == 0, ended.stdout, facts)


def _run_ansible(directory: Path, url: str, token: str, **options: str) -> Result:
    """Run a playbook with the module by the real Ansible."""
    play = [
        {
            "hosts": "localhost",
            "connection": "local",
            "gather_facts": False,
            "tasks": [{"keyturn_run": options}],
        }
    ]
    (directory / "play.yml").write_text(json.dumps(play))
    ended = subprocess.run(
        [Path(sys.executable).parent / "ansible-playbook", "-i", "localhost,", "play.yml", "-vvv"],
        cwd=directory,
        env={
            **os.environ,
            "HOME": str(directory),
            "LANG": "C.UTF-8",
            "ANSIBLE_LIBRARY": str(MODULES),
            "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
            "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
            "ANSIBLE_NOCOLOR": "1",
            "KEYTURN_URL": url,
            "KEYTURN_TOKEN": token,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    # So verbose that it prints the options of the module too.
    assert token not in ended.stdout + ended.stderr
    found = re.search(r"=> (\{.*^\})$", ended.stdout, re.MULTILINE | re.DOTALL)
    assert found is not None, ended.stdout + ended.stderr
    facts: dict[str, Any] = json.loads(found[1])
    assert "module_args" in facts["invocation"]
    kept = {name: str(facts[name]) for name in ("run", "state", "page") if name in facts}
    return Result(ended.returncode == 0, facts["msg"], kept, facts["changed"])


@pytest.fixture(params=[_run_action, _run_ansible], ids=["github", "ansible"])
def start(request: pytest.FixtureRequest, tmp_path: Path, shop: Shop) -> Start:
    def run(
        url: str = shop.service.address, token: str = shop.create_token("dora"), **options: str
    ) -> Result:
        result = request.param(tmp_path, url, token, **options)
        assert token not in result.output
        return result

    return run


def test_approved_run_succeeds(start: Start, shop: Shop):
    shop.fleet.haproxy.abuse(ABUSER)
    thread = shop.decide_when_pending(shop.approve)
    result = start(request=CLEAR, reason="ticket 4711", idempotency_key=f"clear-{time.time_ns()}")
    thread.join()
    assert result.succeeded, result.output
    run = shop.list_runs()[0]
    assert (run.state, run.reason, run.requested_by) == (State.SUCCEEDED, "ticket 4711", "dora")
    assert not shop.fleet.haproxy.marked(ABUSER)
    page = f"{shop.service.address}/runs/{run.id}"
    assert result.facts == {"run": str(run.id), "state": "succeeded", "page": page}
    assert result.changed in {None, True}


def test_denied_run_fails_with_who_denied_it_and_why(start: Start, shop: Shop):
    shop.fleet.haproxy.abuse(ABUSER)
    thread = shop.decide_when_pending(shop.deny)
    result = start(request=CLEAR, idempotency_key=f"deny-{time.time_ns()}")
    thread.join()
    assert not result.succeeded
    assert "Denied. Olga" in result.output
    assert "not during the sale" in result.output
    assert result.facts["state"] == "denied"


def test_repeat_with_the_same_key_makes_no_second_run(start: Start, shop: Shop):
    key = f"again-{time.time_ns()}"
    first = start(request=CHECK, idempotency_key=key)
    assert first.succeeded, first.output
    count = len(shop.list_runs())
    again = start(request=CHECK, idempotency_key=key)
    assert (again.succeeded, again.facts) == (True, first.facts)
    assert len(shop.list_runs()) == count
    assert again.changed in {None, False}
    other = start(request=CLEAR, idempotency_key=key)
    assert not other.succeeded
    assert "Idempotency-Key was used for another request" in other.output


def test_run_that_has_not_ended_in_time_fails_and_is_not_withdrawn(start: Start, shop: Shop):
    shop.fleet.haproxy.abuse(ABUSER)
    result = start(request=CLEAR, timeout="3", idempotency_key=f"late-{time.time_ns()}")
    assert not result.succeeded
    assert "has not ended after 3 s: Needs approval" in result.output
    assert "It was not withdrawn" in result.output
    run = shop.list_runs()[0]
    assert run.state is State.PENDING
    shop.deny(run)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"request": "abusers cleer lb1"}, "abusers"),
        ({"request": CHECK, "token": "kt_wrong"}, "token"),
        ({"request": CHECK, "token": "two words"}, "token is not an API token"),
        ({"request": CHECK, "url": "http://keyturn.example.com"}, "must begin with https://"),
        ({"request": CHECK, "url": "ftp://keyturn.example.com"}, "url must be an address"),
        ({"request": CHECK, "url": "https://u:p@keyturn.example.com"}, "url must be an address"),
        ({"request": CHECK, "idempotency_key": "two words"}, "the idempotency key must have"),
    ],
)
def test_request_that_is_not_possible_fails_with_a_sentence(
    shop: Shop, tmp_path: Path, options: dict[str, str], message: str
):
    count = len(shop.list_runs())
    usual = {"url": shop.service.address, "token": shop.create_token("dora")}
    result = _run_action(tmp_path, **(usual | options))
    assert not result.succeeded
    assert message in result.output
    assert result.facts == {}
    assert len(shop.list_runs()) == count


def test_rerun_of_a_job_waits_for_its_first_run(shop: Shop, tmp_path: Path):
    """Without a key of the workflow's own, a job requests each thing once."""
    token = shop.create_token("dora")
    first = _run_action(tmp_path, shop.service.address, token, request=CHECK)
    (tmp_path / "outputs").unlink()
    again = _run_action(tmp_path, shop.service.address, token, request=CHECK)
    assert first.succeeded
    assert again.facts == first.facts
    run = shop.list_runs()[0]
    assert run.reason == "https://github.example/shop/web/actions/runs/77"
    with shop.service.keyturn.database.reading() as tx:
        kinds = [entry.kind for entry in change_log.list_entries_of_run(tx, run.id)]
    assert kinds.count("requested") == 1


def test_page_on_integrations_shows_inputs_and_options_that_exist(shop: Shop, tmp_path: Path):
    page = (ROOT / "docs" / "integrations.md").read_text()
    workflow, play = (
        YAML(typ="safe").load(found)
        for found in re.findall(r"(?ms)^```yaml\n((?:jobs:|- hosts:).*?)^```", page)
    )
    action = YAML(typ="safe").load((ACTION / "action.yml").read_text())
    (step,) = workflow["jobs"]["deploy"]["steps"]
    required = {name for name, one in action["inputs"].items() if one.get("required")}
    assert required <= set(step["with"]) <= set(action["inputs"])
    table = re.findall(r"(?m)^\| `([a-z-]+)` \| .*? \| ([^|]+) \|$", page)
    assert [name for name, _ in table] == [*action["inputs"]]
    assert {name for name, default in table if default == "required"} == required
    assert dict(table)["timeout"] == action["inputs"]["timeout"]["default"]
    (task,) = play[0]["tasks"]
    options = {name: str(value) for name, value in task["keyturn_run"].items()}
    # No such host: the module takes the options, and Keyturn refuses the request.
    result = _run_ansible(tmp_path, shop.service.address, shop.create_token("dora"), **options)
    assert "the request failed: " in result.output
    assert "Unsupported parameters" not in result.output


@contextmanager
def _serve(
    answers: list[tuple[int, dict[str, str], Any]], tls: ssl.SSLContext | None = None
) -> Generator[tuple[str, list[str]]]:
    """Answer requests in turn, the last for good; yield the address and what was requested."""
    seen: list[str] = []

    class Door(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            seen.append(f"{self.command} {self.path} {self.headers.get('Authorization')}")
            status, headers, body = answers.pop(0) if len(answers) > 1 else answers[0]
            data = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _answer  # noqa: N815 - as http.server calls them

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - its name

    with ThreadingHTTPServer(("127.0.0.1", 0), Door) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}", seen
        server.shutdown()
        thread.join()


def _build_run(**changes: Any) -> dict[str, Any]:
    usual = {
        "id": 7,
        "state": "succeeded",
        "label": "Succeeded",
        "ended": True,
        "summary": "",
        "kind": "change",
        "page": "https://keyturn.example.com/runs/7",
        "needs_attention": False,
    }
    return usual | changes


def test_redirect_never_receives_the_token(tmp_path: Path):
    with _serve([(200, {}, {"run": _build_run()})]) as (elsewhere, stolen):
        with _serve([(302, {"Location": f"{elsewhere}/x"}, {})]) as (url, _):
            result = _run_action(tmp_path, url, "kt_x", request=CHECK)
        assert not result.succeeded
        assert stolen == []


def test_server_without_a_valid_certificate_never_receives_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    certified = create_certificate(tmp_path, names=("127.0.0.1",))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certified.chain)
    with _serve([(202, {}, {"run": _build_run()})], tls) as (url, seen):
        result = _run_action(tmp_path, url, "kt_x", request=CHECK)
        assert not result.succeeded
        assert "has no valid certificate" in result.output
        assert seen == []
        # The runner can trust an authority of your own.
        monkeypatch.setenv("SSL_CERT_FILE", str(certified.authority))
        assert _run_action(tmp_path, url, "kt_x", request=CHECK).succeeded


def test_interrupted_request_is_found_again_by_its_redirect(tmp_path: Path):
    answers: list[tuple[int, dict[str, str], Any]] = [
        (303, {"Location": "/api/v1/runs/7", "Idempotent-Replayed": "true"}, {}),
        (200, {}, _build_run()),
    ]
    with _serve(answers) as (url, seen):
        result = _run_action(tmp_path, url, "kt_x", request=CHECK)
    assert result.succeeded, result.output
    assert seen == ["POST /api/v1/runs Bearer kt_x", "GET /api/v1/runs/7 Bearer kt_x"]


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (_build_run(needs_attention=True, label="Needs attention"), "Needs attention"),
        (_build_run(state="unknown", ended=False, label="Unknown outcome"), "Unknown outcome"),
        (_build_run(state="frobbed", label="Frobbed"), "Frobbed"),
    ],
)
def test_run_that_did_not_surely_succeed_fails(tmp_path: Path, run: Any, message: str):
    with _serve([(202, {}, {"run": run})]) as (url, _):
        result = _run_action(tmp_path, url, "kt_x", request=CHECK)
    assert not result.succeeded
    assert message in result.output


def test_text_of_a_run_is_no_workflow_command(tmp_path: Path):
    hostile = "x\n::add-mask::y\n##[group]z\rw 100%"
    run = _build_run(state="failed", label="Failed", summary=hostile, page="p\nstate=succeeded")
    with _serve([(202, {}, {"run": run})]) as (url, _):
        result = _run_action(tmp_path, url, "kt_x", request=CHECK)
    assert result.facts["state"] == "failed"
    assert "##[" not in result.output
    assert [line[:8] for line in result.output.splitlines()] == ["Keyturn:", "::error "]
    assert "100%25" in result.output
