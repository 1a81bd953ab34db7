"""What a person does in the emulator, told to the bot as Slack tells it."""

from collections.abc import Callable

from tests.slack_emulator import payloads
from tests.slack_emulator.blockkit import faults_of_view
from tests.slack_emulator.deliveries import Courier, NotTaken
from tests.slack_emulator.drafts import answer_of, respond
from tests.slack_emulator.expiring_ids import ResponseTarget, ResponseUrls, Triggers
from tests.slack_emulator.form_values import (
    Offered,
    complaints,
    find,
    initial_state,
    options_of,
    read_state,
)
from tests.slack_emulator.messages import message_json
from tests.slack_emulator.payloads import Context
from tests.slack_emulator.people_json import user_json
from tests.slack_emulator.places import (
    MessagePlace,
    Place,
    ViewPlace,
    action_json,
    payload_with_ids,
)
from tests.slack_emulator.views import View, Views, view_json
from tests.slack_emulator.wire import Fields, Json, SlackError, record, text
from tests.slack_emulator.workspace import Workspace

_TROUBLE = "We had some trouble connecting. Try again?"


class Interactions:
    """Clicks, forms and openings. `hook_url` turns a response ticket's key to its URL."""

    def __init__(
        self,
        workspace: Workspace,
        views: Views,
        courier: Courier,
        *,
        triggers: Triggers,
        hooks: ResponseUrls,
        hook_url: Callable[[str], str],
    ) -> None:
        self._workspace = workspace
        self._views = views
        self._courier = courier
        self._triggers = triggers
        self._hooks = hooks
        self._hook_url = hook_url
        self._states: dict[tuple[str, str], Json] = {}
        # What external selects offered: all that may be chosen, and what a page shows at once.
        self._offered: dict[tuple[str, str], dict[str, dict[str, Json]]] = {}
        self._shown: dict[tuple[str, str], dict[str, dict[str, Json]]] = {}

    # What is filled in

    def state(self, user: str, place: Place) -> Json:
        """Return what a person has filled in, with the bot's own choices where untouched."""
        kept = self._states.get((user, place.key), {})
        state = initial_state(place.blocks)
        for block_id, values in state.items():
            for action_id in values:
                value = record(kept.get(block_id)).get(action_id)
                values[action_id] = value or values[action_id]
        return state

    def shown(self, user: str, place: Place) -> Offered:
        """Return the options that were looked for by a form without scripts."""
        return self._shown.get((user, place.key), {})

    def remember(self, user: str, place: Place, fields: Fields) -> Json:
        """Keep what a form holds, and return it as `state.values`."""
        state = read_state(place.blocks, fields, self._offered.get((user, place.key), {}))
        self._states[user, place.key] = state
        return state

    def context(self, user: str) -> Context:
        """Return what payloads tell of a person, or raise SlackError if the account is closed."""
        if user in self._workspace.deactivated:
            raise SlackError("account_inactive")
        return Context(self._workspace.app, self._workspace.person(user))

    # Buttons and choices

    async def press(self, user: str, place: Place, fields: Fields) -> None:
        """Tell the bot of a button or a choice; `press` among the fields says of which."""
        context = self.context(user)
        state = self.remember(user, place, fields)
        pressed = "".join(fields.get("press", ())[:1])
        stamp = self._workspace.next_ts()
        action = action_json(place.blocks, pressed, state, action_ts=stamp)
        ticket = _ticket(user, place)
        payload = payloads.block_actions(
            context,
            place.json(self._workspace, state, self.response_url(ticket) if ticket else ""),
            action=action,
            trigger_id=self._triggers.issue(user),
        )
        try:
            await self._courier.interaction(payload)
        except NotTaken as trouble:
            self._button_failed(user, place, trouble)

    def _button_failed(self, user: str, place: Place, trouble: NotTaken) -> None:
        if isinstance(place, MessagePlace):
            words = f"⚠️ The app did not take the click: {trouble.error}"
            words += f" (status {trouble.status})." if trouble.status else "."
            thread = place.message.thread_ts if place.message.in_thread else ""
            self._workspace.notice(place.message.channel, user, words, thread_ts=thread)
        else:
            self._views.complain(place.view, {"": f"{_TROUBLE} ({trouble.error})"})

    def response_url(self, ticket: ResponseTarget) -> str:
        return self._hook_url(self._hooks.issue(ticket))

    # External selects

    async def suggest(self, user: str, place: Place, where: str, typed: str) -> list[Json]:
        """Ask the bot what an external select offers, remember it, and return the options."""
        context = self.context(user)
        block, element = find(place.blocks, where)
        payload = payloads.block_suggestion(
            context,
            # Slack does not say what else is filled in while somebody looks for options.
            place.json(self._workspace, {}, ""),
            element={"block_id": block["block_id"], "action_id": element["action_id"]},
            typed=typed,
        )
        try:
            response = await self._courier.interaction(payload)
        except NotTaken:
            return []
        options = options_of(record(response))[:100]
        self._offer(user, place, where, options)
        return options

    def _offer(self, user: str, place: Place, where: str, options: list[Json]) -> None:
        options_by_value = {text(option.get("value")): option for option in options}
        self._offered.setdefault((user, place.key), {}).setdefault(where, {}).update(
            options_by_value
        )

    async def find(self, user: str, place: Place, where: str, typed: str) -> None:
        """Ask the bot what an external select offers, and show it as a plain list."""
        options = await self.suggest(user, place, where, typed)
        options_by_value = {text(option.get("value")): option for option in options}
        self._shown.setdefault((user, place.key), {})[where] = options_by_value
        self._workspace.changes.advance()

    # Forms

    async def submit(self, user: str, view: View, fields: Fields) -> None:
        """Hand a form in, and do what the bot answers: errors, update, push or clear."""
        context = self.context(user)
        place = ViewPlace(view)
        state = self.remember(user, place, fields)
        wrong = complaints(place.blocks, state)
        if wrong:
            self._views.complain(view, wrong)
            return
        asked = {
            block_id: values
            for block_id, values in state.items()
            if any(b.get("block_id") == block_id and b["type"] == "input" for b in place.blocks)
        }
        shown = view_json(view, self._workspace.app, asked)
        trigger_id = self._triggers.issue(user)
        try:
            response = await self._courier.interaction(
                payloads.view_submission(context, shown, trigger_id=trigger_id)
            )
        except NotTaken as trouble:
            self._views.complain(view, {"": f"{_TROUBLE} ({trouble.error})"})
            return
        self._after_submit(user, view, record(response))

    def _after_submit(self, user: str, view: View, response: Json) -> None:
        action = response.get("response_action")
        if action == "errors":
            errors = {key: text(words) for key, words in record(response.get("errors")).items()}
            self._views.complain(view, errors)
        elif action in ("update", "push"):
            self._next_view(user, view, response)
        elif action == "clear":
            self._views.clear(user)
        elif any(open_view.hash == view.hash for open_view in self._views.stack(user)):
            self._views.close(view)

    def _next_view(self, user: str, view: View, response: Json) -> None:
        payload = record(response.get("view"))
        if faults_of_view(payload):
            self._views.complain(view, {"": _TROUBLE + " (the app sent an invalid view)"})
        elif response["response_action"] == "push":
            self._views.push(user, payload_with_ids(payload))
        else:
            self._views.update(view, payload_with_ids(payload))

    async def close(self, user: str, view: View, *, everything: bool) -> None:
        """Close one form, or all that are open; the bot is told where it asked to be."""
        stack = self._views.stack(user)
        gone = [one for one in reversed(stack) if everything or one.id == view.id]
        if everything:
            self._views.clear(user)
        else:
            self._views.close(view)
        for one in gone:
            state = self.state(user, ViewPlace(one))
            for kept in (self._states, self._offered, self._shown):
                kept.pop((user, one.id), None)
            if one.payload.get("notify_on_close") is True:
                await self._tell_closed(user, one, state, is_cleared=everything)

    async def _tell_closed(self, user: str, view: View, state: Json, *, is_cleared: bool) -> None:
        shown = view_json(view, self._workspace.app, state)
        payload = payloads.view_closed(self.context(user), shown, is_cleared=is_cleared)
        try:
            await self._courier.interaction(payload)
        except NotTaken:
            return

    # Shortcuts

    async def shortcut(self, user: str, callback_id: str) -> None:
        payload = payloads.shortcut(
            self.context(user),
            callback_id,
            trigger_id=self._triggers.issue(user),
            action_ts=self._workspace.next_ts(),
        )
        await self._courier.interaction(payload)

    async def message_shortcut(self, user: str, callback_id: str, place: MessagePlace) -> None:
        ticket = ResponseTarget(place.message.channel, user, place.message.ts)
        channel = self._workspace.channel(place.message.channel)
        where: Json = {
            "channel": payloads.channel_ref(channel),
            "message": message_json(place.message, self._workspace.app),
            "message_ts": place.message.ts,
            "action_ts": self._workspace.next_ts(),
            "response_url": self.response_url(ticket),
        }
        payload = payloads.message_action(
            self.context(user), callback_id, where, trigger_id=self._triggers.issue(user)
        )
        response = await self._courier.interaction(payload)
        if answer_of(response):
            respond(self._workspace, ticket, answer_of(response))

    # Events

    def home_opened(self, user: str, channel_id: str, *, tab: str) -> None:
        """Tell the bot that a person looks at its Home (`home`) or its messages (`messages`)."""
        self.context(user)
        stamp = self._workspace.next_ts()
        inner: Json = {
            "type": "app_home_opened",
            "user": user,
            "channel": channel_id,
            "event_ts": stamp,
            "tab": tab,
        }
        home = self._views.home(user)
        if home is not None and tab == "home":
            state = self.state(user, ViewPlace(home))
            inner["view"] = view_json(home, self._workspace.app, state)
        self.event(inner)

    def set_active(self, user: str, *, active: bool) -> None:
        """Close an account or open it again, and tell the bot."""
        self._workspace.set_active(user, active=active)
        shown = user_json(self._workspace, user)
        stamp = self._workspace.next_ts()
        self.event({"type": "user_change", "user": shown, "cache_ts": 0, "event_ts": stamp})

    def event(self, inner: Json) -> None:
        """Tell the bot of an event; nobody waits for it."""
        moment = self._workspace.now()
        self._courier.event(payloads.event(self._workspace.app, inner, moment=moment))


def _ticket(user: str, place: Place) -> ResponseTarget | None:
    if isinstance(place, ViewPlace):
        return None
    message = place.message
    return ResponseTarget(message.channel, user, message.ts, message.thread_ts)
