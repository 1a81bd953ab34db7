"""The emulator's pages: sign-in, origin, and escaping."""

import re

import httpx2
import pytest
from starlette.applications import Starlette

from tests.slack_emulator.deliveries import to_app
from tests.slack_emulator.emulator import Emulator
from tests.slack_emulator.login import CONTENT_POLICY, COOKIE
from tests.slack_emulator.messages import Message
from tests.slack_emulator.page_client import open_page_client, run
from tests.slack_emulator.serving import wait_until
from tests.slack_emulator.showcase import DORA, OPS, showcase

HERE = "http://127.0.0.1:8080"


def client(emulator: Emulator, *, peer: str = "127.0.0.1", base: str = HERE) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(emulator.app, client=(peer, 50_000))
    return httpx2.AsyncClient(transport=transport, base_url=base)


def test_emulator_sign_in_link_works_once() -> None:
    async def scene() -> None:
        emulator = showcase().emulator
        link = emulator.sign_in_link(HERE)
        async with client(emulator) as first, client(emulator) as second:
            opened = await first.get(link)
            assert opened.status_code == 303
            cookie = opened.headers["set-cookie"]
            assert cookie.startswith(COOKIE)
            assert "HttpOnly" in cookie
            assert "SameSite=strict" in cookie
            assert (await second.get(link)).status_code == 403
            assert (await first.get("/as/U0DORA/c/C0OPS")).status_code == 200
            assert (await second.get("/as/U0DORA/c/C0OPS")).status_code == 403

    run(scene())


def test_emulator_takes_its_secrets_from_the_given_function() -> None:
    secrets = iter(["first-ticket", "first-session"])
    emulator = Emulator(
        people=[DORA],
        channels=[OPS],
        signing_secret="x",
        deliver=to_app(showcase().app),
        mint=lambda: next(secrets),
    )
    assert emulator.sign_in_link(HERE + "/") == f"{HERE}/sign-in?ticket=first-ticket"


@pytest.mark.parametrize(
    "path",
    ["/", "/as/U0DORA/c/C0OPS", "/as/U0DORA/home", "/events", "/files/F0", "/m/C0OPS/1.000100"],
)
def test_emulator_pages_are_refused_without_sign_in(path: str) -> None:
    async def scene() -> None:
        async with client(showcase().emulator) as stranger:
            answer = await stranger.get(path)
            assert answer.status_code == 403
            assert "Open the sign-in link" in answer.text

    run(scene())


@pytest.mark.parametrize(
    ("headers", "taken"),
    [
        ({"origin": HERE}, True),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"origin": HERE, "sec-fetch-site": "same-origin"}, True),
        ({}, False),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "http://127.0.0.1:9999"}, False),
        ({"origin": "null"}, False),
        ({"origin": HERE, "sec-fetch-site": "same-site"}, False),
        ({"origin": HERE, "sec-fetch-site": "cross-site"}, False),
    ],
)
def test_emulator_accepts_forms_of_the_same_origin_only(
    headers: dict[str, str], *, taken: bool
) -> None:
    async def scene() -> None:
        emulator = showcase().emulator
        async with client(emulator) as person:
            await person.get(emulator.sign_in_link(HERE))
            form = {"text": "hello", "at": "C0OPS"}
            answer = await person.post("/as/U0DORA/say", data=form, headers=headers)
            assert answer.status_code == (303 if taken else 403)
            assert bool(emulator.workspace.log("C0OPS", "U0DORA")) is taken

    run(scene())


@pytest.mark.parametrize(
    ("peer", "base", "status"),
    [
        ("127.0.0.1", HERE, 303),
        ("127.0.0.1", "http://localhost:8080", 303),
        ("::1", "http://[::1]:8080", 303),
        ("10.0.0.9", HERE, 403),
        ("127.0.0.1", "http://rebound.example:8080", 403),
    ],
)
def test_emulator_answers_this_machine_only(peer: str, base: str, status: int) -> None:
    async def scene() -> None:
        emulator = showcase().emulator
        async with client(emulator, peer=peer, base=base) as person:
            answer = await person.get(emulator.sign_in_link(base))
            assert answer.status_code == status
            api = await person.post("/api/auth.test", data={"token": emulator.bot_token})
            assert api.status_code == (200 if status == 303 else 403)

    run(scene())


def test_without_the_local_guard_another_machine_signs_in() -> None:
    async def scene() -> None:
        emulator = showcase().emulator
        emulator.app = Starlette(routes=emulator.app.routes)
        async with client(emulator, peer="10.0.0.9", base="http://rebound.example") as person:
            answer = await person.get(emulator.sign_in_link("http://rebound.example"))
            assert answer.status_code == 303
            assert "content-security-policy" not in answer.headers

    run(scene())


def test_every_emulator_response_has_a_content_security_policy() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            for path in ("as/U0DORA/c/C0OPS", "static/emulator.js", "as/U0NOBODY/home", "nothing"):
                answer = await dora.client.get(path)
                assert answer.headers["content-security-policy"] == CONTENT_POLICY
                assert answer.headers["x-content-type-options"] == "nosniff"

    run(scene())


def test_emulator_pages_have_no_inline_script_or_style() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            await dora.say("/keyturn restart web-3")
            await wait_until(lambda: dora.shown)
            await dora.say("/keyturn ask")
            await wait_until(lambda: dora.made.emulator.views.top("U0DORA"))
            page = await dora.page(thread=dora.shown[0].ts)
            assert "Ask for a run" in page
            assert re.findall(r"<script(?! src=)|<style|\sstyle=|\son\w+=", page) == []

    run(scene())


def test_hostile_message_stays_text_on_the_page() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            nasty = '<img src=x onerror=alert(1)>"><script>alert(2)</script>'
            workspace = dora.made.emulator.workspace
            workspace.post(Message("C0OPS", "", "U0KEYTURN", nasty))
            await dora.say(nasty)
            page = await dora.page()
            assert "<img src=x" not in page
            assert "<script>" not in page
            assert dora.words[1].startswith("&lt;img")

    run(scene())


def test_private_channel_is_shown_to_its_members_only() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            dora.at = "C0DESK"
            answer = await dora.client.get("as/U0DORA/c/C0DESK")
            assert answer.status_code == 404
            assert "desk" not in await dora.page("home")
            assert "desk" in await dora.acting_as("U0ALICE").page()

    run(scene())


def test_unread_messages_are_counted_until_the_channel_is_opened() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            bob = dora.acting_as("U0BOB")
            await bob.say("one")
            await bob.say("two")
            assert '2<span class="hidden"> unread' in await dora.page("home")
            await dora.page()
            assert "unread" not in await dora.page("home")

    run(scene())


def test_event_stream_reports_each_change() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            changes = dora.made.emulator.workspace.changes
            seen = changes.sequence
            async with dora.client.stream("GET", f"events?after={seen}") as stream:
                lines = stream.aiter_lines()
                assert await anext(lines) == "retry: 300"
                await dora.say("news")
                events = [await anext(lines) for _ in range(3)]
            assert events == ["", f"id: {changes.sequence}", f"data: {changes.sequence}"]
            assert changes.sequence > seen

    run(scene())


def test_page_refresh_sends_no_second_app_home_opened_event() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            await dora.page("home")
            await wait_until(lambda: dora.made.of_type("event_callback"))
            headers = {"x-refresh": "1"}
            await dora.client.get("as/U0DORA/home", headers=headers)
            await dora.made.emulator.courier.settled()
            assert len(dora.made.of_type("event_callback")) == 1

    run(scene())


def test_faults_form_sets_faults_and_archives_channels() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            fields = {"latency": "2", "calls_to_limit": "3", "retry_after": "9", "retries": "1"}
            await dora.post("faults", {"do": "set", **fields, "twice": "yes"})
            faults = dora.made.emulator.workspace.faults
            shown = (faults.latency, faults.calls_to_limit, faults.retry_after, faults.retries)
            assert (*shown, faults.twice) == (2, 3, 9, 1, True)
            faults.latency = 0
            await dora.post("faults", {"do": "remove:C0OPS"})
            assert "Keyturn is not in here" in await dora.page()
            await dora.post("faults", {"do": "archive:C0OPS"})
            await dora.say("hello")
            assert dora.words == ["This channel is archived: nobody can post."]

    run(scene())


def test_permalink_redirects_to_the_message() -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            await dora.say("here")
            answer = await dora.client.get(f"m/C0OPS/{dora.shown[0].ts}")
            target = f"/emulator/as/U0DORA/c/C0OPS?thread={dora.shown[0].ts}"
            assert answer.headers["location"] == target

    run(scene())


@pytest.mark.parametrize("path", ["as/U0NOBODY/home", "as/U0DORA/c/C0NONE", "m/C0OPS/1.0"])
def test_unknown_person_channel_or_message_is_not_found(path: str) -> None:
    async def scene() -> None:
        async with open_page_client() as dora:
            answer = await dora.client.get(path)
            assert answer.status_code == 404
            assert "That did not work" in answer.text

    run(scene())
