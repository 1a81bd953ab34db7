"""The screenshots of the documentation, from a running demo: `make pictures`.

It starts the hosts, the service and the chat of `make demo`, makes a few requests, and opens the
chat and the pages in Chromium.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from playwright.sync_api import Page
from ruamel.yaml import YAML

from bot.db import runs
from bot.model.run import State
from tests.acceptance.browsing import chromium
from tests.playground import sample_company
from tests.playground.fleet import SHOP_PLACES, LoopbackFleet
from tests.playground.service import Chat, Service

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
ABUSER, CRAWLER = "203.0.113.9", "198.51.100.23"
DORA, OLGA, STAN = "U0DORA", "U0OLGA", "U0STAN"
# Where HAProxy's socket would be on a host, instead of a temporary directory.
_SOCKETS = Path("/run/haproxy")
_PATIENCE = 30.0
_WIDTH, _HEIGHT, _SCALE = 1440, 900, 1.25
_T = TypeVar("_T")


def main() -> None:
    os.umask(0o022)  # a policy that others may write is refused
    directory = Path(tempfile.mkdtemp(prefix="keyturn-pictures-"))
    try:
        sample_company.create_policy(directory / "policy")
        with (
            LoopbackFleet(directory / "policy", places=SHOP_PLACES) as fleet,
            usual_socket_paths(fleet),
            Service(sample_company.add_fault_tree(directory)) as service,
        ):
            make_requests(fleet, service)
            take_pictures(service)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def usual_socket_paths(fleet: LoopbackFleet) -> Generator[None]:
    """Let the inventory name sockets in /run/haproxy, as on a host, where that can be written."""
    links: list[Path] = []
    try:
        if os.access(_SOCKETS, os.W_OK):
            yaml = YAML()
            yaml.width = 200
            inventory = yaml.load(fleet.inventory_file)
            for name in fleet.haproxies:
                settings = inventory["hosts"][name]["settings"]
                link = _SOCKETS / f"keyturn-{name}.sock"
                link.unlink(missing_ok=True)
                link.symlink_to(settings["haproxy.socket"])
                links.append(link)
                settings["haproxy.socket"] = str(link)
            yaml.dump(inventory, fleet.inventory_file)
        yield
    finally:
        for link in links:
            link.unlink(missing_ok=True)


def make_requests(fleet: LoopbackFleet, service: Service) -> None:
    """Make requests in chat that end in several states; the last one needs approval."""
    for balancer in fleet.haproxies.values():
        for address in (ABUSER, CRAWLER):
            balancer.abuse(address)
    chat = Chat(service)
    try:
        for number, (user, command, decision, state) in enumerate(_REQUESTS, 1):
            chat.say(user, f"/keyturn {command}")
            if decision:
                wait_for_state(service, number, State.PENDING)
            if decision == DENIAL:
                chat.say(OLGA, f"/keyturn deny {number} {DENIAL}")
            elif decision:
                decide(chat, number, decision)
            wait_for_state(service, number, state)
    finally:
        chat.close()


DENIAL = "not during the sale"
# Who types what, how Olga decides, and the state of the run in the end.
_REQUESTS = (
    (DORA, "abusers show lb1 http", "", State.SUCCEEDED),
    (DORA, "hidepid show web1 because the audit asks for it", "", State.SUCCEEDED),
    (DORA, "abusers mark lb2 192.0.2.77 because it scans the shop", DENIAL, State.DENIED),
    (STAN, "hidepid show db1", "", State.SUCCEEDED),
    (OLGA, "abusers tables lb2", "", State.SUCCEEDED),
    (DORA, f"abusers clear lb1 {ABUSER} because a customer called", "Approve", State.SUCCEEDED),
    (DORA, f"abusers clear lb2 {ABUSER} because the same customer", "", State.PENDING),
)


def decide(chat: Chat, number: int, label: str) -> None:
    """Press the button of the newest card as Olga."""
    at = wait_until(lambda: chat.button(label), f"the card of run {number}")
    chat.press(OLGA, *at)


def wait_for_state(service: Service, number: int, state: State) -> None:
    def is_in_state() -> bool:
        with service.keyturn.database.reading() as tx:
            return runs.get_run(tx, number).state is state

    wait_until(is_in_state, f"run {number} to be {state}")


def wait_until(get: Callable[[], _T | None], what: str) -> _T:
    deadline = time.monotonic() + _PATIENCE
    while not (result := get()):
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {_PATIENCE:.0f} s in vain for {what}")
        time.sleep(0.05)
    return result


def take_pictures(service: Service) -> None:
    """Open chat and pages, and write a picture of each."""
    PICTURES.mkdir(exist_ok=True)
    channel = service.emulator.workspace.channels_of(DORA)[0].id
    with chromium() as browser:
        context = browser.new_context(
            viewport={"width": _WIDTH, "height": _HEIGHT},
            device_scale_factor=_SCALE,
            color_scheme="light",
            locale="en-GB",
            timezone_id="Europe/Amsterdam",
        )
        page = context.new_page()
        page.goto(service.emulator.sign_in_link())
        # High enough for the last two cards.
        page.set_viewport_size({"width": _WIDTH, "height": 1000})
        page.goto(f"{service.emulator.url}/as/{OLGA}/c/{channel}")
        write(page, "chat")
        page.set_viewport_size({"width": _WIDTH, "height": _HEIGHT})
        page.goto(service.sign_in_link("olga"))
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{service.address}/")
        for name, path in PAGE_PICTURES.items():
            page.goto(service.address + path)
            write(page, name)


# Picture, and the page that it shows.
PAGE_PICTURES = {
    "run": "/runs/6",
    "approval": "/runs/7",
    "history": "/runs",
    "hosts": "/hosts",
    "policy": "/policy",
    "redundancy": "/redundancy/balancers",
}


def write(page: Page, name: str) -> None:
    page.wait_for_load_state("networkidle")
    page.screenshot(path=PICTURES / f"{name}.png")
    print(f"wrote docs/pictures/{name}.png", flush=True)


if __name__ == "__main__":
    main()
