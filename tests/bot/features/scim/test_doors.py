"""A person removed by SCIM is out within a second, at each door of a real service."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from bot.auth import sessions
from bot.model.times import DAY
from tests.bot.features.scim.accounts import add_provisioning, bind
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
    sample_company.create_policy(tmp_path / "policy")
    (tmp_path / "policy" / "inventory.yaml").write_text(INVENTORY)
    add_provisioning(tmp_path / "policy")
    with Service(tmp_path, scim_token=TOKEN) as service:
        yield service


@pytest.fixture
def scim(service: Service) -> Generator[httpx2.Client]:
    with httpx2.Client(
        base_url=f"{service.address}/scim/v2",
        headers={"Authorization": f"Bearer {TOKEN}"},
        timeout=60,
    ) as client:
        yield client


@pytest.fixture
def account(service: Service, scim: httpx2.Client, tmp_path: Path) -> str:
    """The account of Dora, which people.yaml names."""
    body = {"userName": "dora@example.com", "externalId": "00u1", "active": True}
    number = scim.post("/Users", json=body).json()["id"]
    bind(tmp_path / "policy", "dora", number)
    wait_until(lambda: service.keyturn.service.policies.get_policy().find_person("dora"))
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
    chat.say("U0DORA", "/keyturn can-i uptime check lb1")
    wait_until(lambda: "people.yaml" in chat.page("U0DORA"))
    assert service.keyturn.service.policies.get_policy().find_person("dora") is None
    with service.keyturn.database.reading() as tx:
        assert not sessions.list_sessions(tx, "dora")
    assert removed_after < 20


def test_an_agent_of_a_removed_person_is_out(
    service: Service, scim: httpx2.Client, account: str
) -> None:
    agents = service.keyturn.service.agents
    agents.add_agent("triage", owner="dora", purpose="reads alerts", days=1, person="adam")
    agents.confirm_agent("triage", person="olga")
    _, secret = agents.create_token("triage", behalf="", days=1)
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {
        "Authorization": f"Bearer {secret}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2025-06-18",
    }

    def call() -> int:
        return httpx2.post(
            f"{service.address}/mcp", json=body, headers=headers, timeout=60
        ).status_code

    assert call() == 200
    assert scim.delete(f"/Users/{account}").status_code == 204
    assert call() == 401
