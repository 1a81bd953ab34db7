"""Keyturn's cards, form and Home tab in a real browser: they fit, with enough contrast."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest
from playwright.async_api import Page, expect

from bot.db.break_glass import BreakGlass
from bot.model.run import State, StepRecord, StepState
from bot.model.waiting import Waiting, WaitingFor
from bot.slack.blocks import Message, View, actions, bold, button, code
from bot.slack.features import HomeSection
from bot.slack.home import HomeContent, render_home
from bot.slack.modals import RequestFormView, render_form
from bot.slack.notifications import render_break_glass_alert
from bot.slack.run_facts import Approver, SlackRunView
from bot.slack.run_forms import render_plan_message
from bot.slack.run_message import render_card, render_result
from bot.slack.storms import render_shared_card
from connectors.command import Shell
from runbooks import load_catalogue
from tests.acceptance.browsing import CONTRAST
from tests.bot.slack.sample_views import (
    ASKED,
    MINUTE,
    build_approval,
    build_children,
    build_plan,
    build_run,
    build_run_view,
    build_run_view_of_each_state,
    build_step,
    replace_facts,
)
from tests.chromium import get_picture_file
from tests.slack_emulator.browsing import SharedBrowser
from tests.slack_emulator.showcase import Showcase

pytestmark = pytest.mark.real
# Width and colour scheme of a telephone and of a desk.
SCREENS: Sequence[tuple[int, Literal["light", "dark"]]] = ((390, "dark"), (1200, "light"))


def _clears(host: str, number: int) -> Any:
    address = f"203.0.113.{number}"
    return build_step(
        title=f"Forget {address}",
        host=host,
        command=Shell(("haproxyctl", "clear", "table", "http", "key", address)),
    )


def fan_out() -> SlackRunView:
    """A request for several hosts, half done."""
    hosts = tuple(f"lb{n}.edge.example.com" for n in range(1, 13))
    proposal = build_plan(*(_clears(host, 9) for host in hosts))
    going = build_run(
        State.RUNNING,
        proposal=proposal,
        hosts=hosts,
        host="lb*.edge.example.com",
        request="abusers clear lb* 203.0.113.9",
        started_at=ASKED + 2 * MINUTE,
    )
    return build_run_view(
        going,
        decisions=[build_approval()],
        children=build_children(going, ended=5, running=3),
        now=ASKED + 4 * MINUTE,
    )


def with_break_glass() -> SlackRunView:
    pane = BreakGlass(
        12, "dora", "checkout is down: customers cannot pay", ASKED, ASKED, ASKED + 60 * MINUTE
    )
    return build_run_view(
        build_run(State.RUNNING, started_at=ASKED + MINUTE),
        break_glass=pane,
        owners=[Approver("Olga Owner", "U0ALICE"), Approver("Adam Admin", "U0BOB")],
    )


def long_output() -> SlackRunView:
    done = StepRecord(12, 1, StepState.SUCCEEDED, ASKED + 2 * MINUTE, exit_status=0)
    output = "\n".join(
        f"table http, entry {n:>4}: 203.0.113.{n % 250}, cleared" for n in range(20)
    )
    return replace_facts(
        build_run_view_of_each_state()["succeeded"],
        step_records=[replace(done, output=output)],
        requester="U0DORA",
    )


def scenes() -> dict[str, list[Message]]:
    """What is posted, one picture for each."""
    owners = (Approver("Alice Ops", "U0ALICE"), Approver("Bob Net", "U0BOB"))
    drawn = {
        name: [render_card(replace(run_view, approvers=owners))]
        for name, run_view in build_run_view_of_each_state().items()
    }
    later = build_run(
        State.QUEUED, waiting=Waiting(WaitingFor.START_TIME, time=ASKED + 60 * MINUTE)
    )
    drawn["starts later"] = [render_card(build_run_view(later, decisions=[build_approval()]))]
    drawn["several hosts"] = [render_card(fan_out())]
    states = [run_view.run for run_view in build_run_view_of_each_state().values()]
    storm = [replace(run, id=number) for number, run in enumerate(states * 2, start=11)]
    drawn["storm"] = [render_shared_card(build_run_view(), storm)]
    drawn["broken glass"] = [
        render_break_glass_alert(with_break_glass()),
        render_card(with_break_glass()),
    ]
    planned = build_run_view_of_each_state()["planned"]
    never = build_plan(build_step(undo=None, no_undo_reason="HAProxy forgets every entry of http"))
    irreversible = replace_facts(planned, run=build_run(State.PLANNED, proposal=never))
    drawn["plans"] = [render_plan_message(planned), render_plan_message(irreversible)]
    drawn["the end"] = [render_result(long_output())]
    return drawn


def home() -> View:
    states = build_run_view_of_each_state()
    unrequested = [
        replace_facts(states[name], run=replace(states[name].run, id=number))
        for number, name in ((13, "counter_proposed"), (14, "planned"))
    ]
    going = [states["running"].run, fan_out().run]
    over = [states[name].run for name in ("succeeded", "failed", "denied", "expired", "stale")]
    upcoming = [
        bold("nightly scrub of nas1 tank"),
        " – Sat 2026-11-21 02:00 UTC – ",
        code("/keyturn schedule 3"),
    ]
    return render_home(
        HomeContent(
            "olga",
            ASKED + MINUTE,
            build_run_view().person_names,
            "https://keyturn.example.com",
            [build_run_view(approvers=(Approver("Bob Net", "U0BOB"),))],
            [],
            [
                replace_facts(
                    states["pending"],
                    run=replace(states["pending"].run, id=15),
                    lacks_signed_request=True,
                )
            ],
            [states["unknown"].run],
            unrequested,
            over[:3],
            going,
            over,
            added=[HomeSection("Schedules", [upcoming])],
        )
    )


def build_form() -> View:
    requirements = ["It takes an approval from the owners of the edge: Olga Owner or Adam Admin."]
    return render_form(
        RequestFormView(
            load_catalogue()["abusers clear"], ["lb1", "lb2"], {"via": ""}, "lb1", requirements
        )
    )


async def _fill_in(page: Page, made: Showcase) -> None:
    """Open the real form, and hand it in without what it needs."""

    view = build_form()

    @made.bolt.action("open-it")
    async def open_it(ack: Any, body: Any, client: Any) -> None:
        await ack()
        await client.views_open(trigger_id=body["trigger_id"], view=view)

    click = button("Fill in", action="open-it", value="1", label="Fill in the form")
    await made.bolt.client.chat_postMessage(
        channel="C0OPS", text="A form", blocks=[actions("open", click)]
    )
    await page.get_by_role("button", name="Fill in").click()
    await page.locator("#modal").get_by_role("button", name="Plan", exact=True).click()
    await expect(page.get_by_role("alert").first).to_be_visible()


async def check_screenshots(page: Page, name: str, wrong: dict[str, Any]) -> None:
    """Keep pictures if wanted, and note for each screen what sticks out or is too pale there."""
    for width, scheme in SCREENS:
        screen = f"{name}-{scheme}-{width}"
        await page.set_viewport_size({"width": width, "height": 900})
        await page.emulate_media(color_scheme=scheme)
        if file := get_picture_file(f"chat-{screen}"):
            await page.screenshot(path=file)
        wide = await page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        if wide > 0:
            wrong[f"{screen}: wider than the screen by"] = wide
        if names := re.findall(r":[a-z_]{3,}:", await page.locator("body").inner_text()):
            wrong[f"{screen}: emoji without a picture"] = names
        if pale := await page.evaluate(CONTRAST):
            wrong[f"{screen}: too pale"] = pale


def test_cards_form_and_home_tab_fit_the_screen_with_enough_contrast(
    shared_browser: SharedBrowser,
) -> None:
    async def scene() -> Mapping[str, Any]:
        wrong: dict[str, Any] = {}
        async with shared_browser.sign_in() as (page, made):
            speak = made.bolt.client
            for name, messages in scenes().items():
                for message in messages:
                    await speak.chat_postMessage(
                        channel="C0OPS", text=message.text, blocks=list(message.blocks)
                    )
                await expect(page.locator("main article")).to_have_count(len(messages))
                await check_screenshots(page, name.replace(" ", "-"), wrong)
                for posted in made.emulator.workspace.log("C0OPS", "U0DORA"):
                    made.emulator.workspace.delete("C0OPS", posted.ts)
                await expect(page.locator("main article")).to_have_count(0)
            await _fill_in(page, made)
            await check_screenshots(page, "form", wrong)
            # It would lie over the Home tab.
            await page.locator("#modal").get_by_role("button", name="Cancel").click()
            await expect(
                page.locator("#modal").get_by_role("button", name="Cancel")
            ).to_be_hidden()
            await page.goto(f"{made.emulator.url}/as/U0DORA/home")
            # The bot of the emulator answers the opening with a Home tab of its own.
            theirs = page.get_by_role("button", name="Ask for a Run", exact=True)
            await expect(theirs).to_be_visible()
            await speak.views_publish(user_id="U0DORA", view=home())
            await expect(page.get_by_text("nightly scrub of nas1 tank")).to_be_visible()
            await check_screenshots(page, "home", wrong)
        return wrong

    assert shared_browser.play(scene()) == {}
