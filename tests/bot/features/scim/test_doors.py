"""A person removed by SCIM is out within a second, at each door of a real service."""

import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
import pytest

from bot.audit import change_log, events
from bot.auth import sessions
from bot.db import outbox, runs
from bot.model.run import Run, State
from bot.model.times import DAY
from tests.bot.features.scim.accounts import add_provisioning, bind
from tests.bot.web import sample_runs
from tests.cli_process import Typed, run_command
from tests.playground import sample_company
from tests.playground.service import Chat, Service
from tests.policies import INVENTORY

pytestmark = pytest.mark.real

TOKEN = "a-scim-token-of-more-than-32-characters"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
# On a busy machine the threads of this test wait for one another.
WITHIN_SECONDS = 1.0


@pytest.fixture
def service(tmp_path: Path) -> Generator[Service]:
    with serve(tmp_path) as service:
        yield service


@contextmanager
def serve(directory: Path) -> Generator[Service]:
    """Serve a company whose provider adds and removes people."""
    sample_company.create_policy(directory / "policy")
    (directory / "policy" / "inventory.yaml").write_text(INVENTORY)
    add_provisioning(directory / "policy")
    with Service(directory, scim_token=TOKEN) as service:
        yield service


@pytest.fixture
def scim(service: Service) -> Generator[httpx2.Client]:
    with open_provider(service) as client:
        yield client


def open_provider(service: Service) -> httpx2.Client:
    return httpx2.Client(
        base_url=f"{service.address}/scim/v2",
        headers={"Authorization": f"Bearer {TOKEN}"},
        timeout=60,
    )


@pytest.fixture
def account(service: Service, scim: httpx2.Client, tmp_path: Path) -> str:
    """The account of Dora, which people.yaml names."""
    return add_account(service, scim, tmp_path / "policy", "dora")


def add_account(service: Service, scim: httpx2.Client, policy: Path, person: str) -> str:
    """Add the account of a person of people.yaml, which names it, and return its id."""
    body = {"userName": f"{person}@example.com", "externalId": f"00u-{person}", "active": True}
    number = scim.post("/Users", json=body).json()["id"]
    bind(policy, person, number)

    def is_bound() -> bool:
        found = service.keyturn.service.policies.get_policy().find_person(person)
        return found is not None and found.provisioned == number

    wait_until(is_bound)
    return number


def wait_until(is_so: Callable[[], object], seconds: float = 20.0) -> float:
    """Return after how many seconds something is so."""
    began = time.monotonic()
    while not is_so():
        assert time.monotonic() < began + seconds
        time.sleep(0.02)
    return time.monotonic() - began


@pytest.fixture
def browser(service: Service) -> Generator[httpx2.Client]:
    """The browser of Dora, who is signed in."""
    with httpx2.Client(
        base_url=service.address, headers={"Origin": service.address}, timeout=60
    ) as browser:
        yield browser


@pytest.fixture
def api(service: Service) -> Generator[httpx2.Client]:
    with httpx2.Client(base_url=f"{service.address}/api/v1", timeout=60) as api:
        yield api


@pytest.fixture
def chat(service: Service) -> Generator[Chat]:
    with closing(Chat(service)) as chat:
        yield chat


def run_keyturn_for(service: Service, token: str, *words: str) -> Typed:
    """Type a command with the token of a person."""
    env = {"KEYTURN_URL": service.address, "KEYTURN_TOKEN": token}
    return run_command(words, env=os.environ | env)


class OpenPage:
    """A page that follows changes, in a thread of its own."""

    def __init__(self, browser: httpx2.Client) -> None:
        self.received = ""
        self._browser = browser
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._browser.stream("GET", "/stream") as answer:
            for text in answer.iter_text():
                self.received += text


def test_a_removed_person_is_out_at_every_door_within_a_second(
    service: Service,
    scim: httpx2.Client,
    account: str,
    browser: httpx2.Client,
    api: httpx2.Client,
    chat: Chat,
) -> None:
    assert browser.post(service.sign_in_link("dora")).status_code == 303
    _, secret = service.keyturn.service.tokens.create_token(
        person="dora", scopes=["read", "request"], days=1, name="laptop", source="web"
    )
    api.headers["Authorization"] = f"Bearer {secret}"
    page = OpenPage(browser)
    with service.keyturn.database.transaction() as tx:
        link = sessions.create_sign_in_link(tx, "dora")
        ends_at = tx.now + DAY
    service.keyturn.service.delegations.create_delegation(
        delegator="olga", delegate="dora", ends_at=ends_at, source="web"
    )
    chat.say("U0DORA", "/keyturn can-i uptime check lb1")
    wait_until(lambda: "Runs immediately" in chat.page("U0DORA"))
    assert api.get("/runs").status_code == 200
    assert run_keyturn_for(service, secret, "runs").returncode == 0
    assert browser.get("/").status_code == 200
    wait_until(lambda: "event: changed" in page.received)

    began = time.monotonic()
    deactivate = [{"op": "Replace", "path": "active", "value": "False"}]
    answer = scim.patch(f"/Users/{account}", json={"schemas": [PATCH], "Operations": deactivate})
    removed_after = time.monotonic() - began
    assert answer.status_code == 204
    # From the answer on, every door is closed but that of the page that was open already.
    assert wait_until(lambda: "event: access_ended" in page.received) < WITHIN_SECONDS
    assert browser.get("/", follow_redirects=False).status_code in {303, 401}
    assert api.get("/runs").status_code == 401
    assert api.post("/runs", json={"request": "uptime check lb1"}).status_code == 401
    assert browser.post(f"/sign-in/{link}").status_code == 410
    typed = run_keyturn_for(service, secret, "runs")
    assert (typed.returncode, typed.stdout) == (4, "")
    assert typed.stderr.startswith("keyturn: This token was revoked: create a token")
    chat.say("U0DORA", "/keyturn can-i uptime check lb1")
    wait_until(lambda: "people.yaml" in chat.page("U0DORA"))
    assert service.keyturn.service.policies.get_policy().find_person("dora") is None
    with service.keyturn.database.reading() as tx:
        assert not sessions.list_sessions(tx, "dora")
    assert removed_after < 20


def test_a_button_on_a_card_of_before_is_refused_to_a_removed_person(
    service: Service, scim: httpx2.Client, chat: Chat, tmp_path: Path
) -> None:
    account = add_account(service, scim, tmp_path / "policy", "adam")

    def post_card() -> Run:
        """Let a plan wait for approval, and return it once its card is in the channel."""
        version = service.keyturn.policies.get_policy().version
        with service.keyturn.database.transaction() as tx:
            run = sample_runs.add_requested_run(tx, channel="C0PRODUCTION", user="U0DORA")
            plan = sample_runs.build_plan(run, policy_version=version)
            run = sample_runs.add_pending_run(tx, run, plan)
            outbox.announce_run(tx, run.id)
        wait_until(lambda: f"run-{run.id}-" in (chat.button("Approve") or ("", ""))[1])
        return run

    def list_approvers(run: Run) -> list[str]:
        with service.keyturn.database.reading() as tx:
            entries = change_log.list_entries_of_run(tx, run.id, [events.Approved.kind])
        return [one.person for one in entries]

    def get_state(run: Run) -> State:
        with service.keyturn.database.reading() as tx:
            return runs.get_run(tx, run.id).state

    before = post_card()
    chat.press("U0ADAM", *chat.buttons()["Approve"])
    # No host of this company can be reached.
    wait_until(lambda: get_state(before) is State.FAILED)
    assert list_approvers(before) == ["adam"]
    run = post_card()
    where = chat.buttons()["Approve"]
    assert scim.delete(f"/Users/{account}").status_code == 204
    chat.press("U0ADAM", *where)
    wait_until(lambda: "does not know your Slack account" in chat.page("U0ADAM"))
    assert (list_approvers(run), get_state(run)) == ([], State.PENDING)
    # The card is as good as before for another person.
    chat.press("U0OLGA", *where)
    wait_until(lambda: list_approvers(run) == ["olga"])
