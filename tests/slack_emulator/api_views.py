"""Web API: views.*"""

from tests.slack_emulator.blockkit import faults_of_view
from tests.slack_emulator.calls import Call, Methods
from tests.slack_emulator.places import payload_with_ids
from tests.slack_emulator.views import View, view_json
from tests.slack_emulator.wire import Json, SlackError, record


def _payload(call: Call, kind: str) -> Json:
    view = record(call.args.get("view"))
    faults = faults_of_view(view)
    if not faults and view["type"] != kind:
        faults = [f"[ERROR] must be {kind} [json-pointer:/view/type]"]
    if faults:
        raise SlackError("invalid_arguments", faults)
    return payload_with_ids(view)


def _shown(call: Call, view: View) -> Json:
    return {"view": view_json(view, call.workspace.app, {})}


def _open(call: Call) -> Json:
    payload = _payload(call, "modal")
    user = call.context.triggers.redeem(call.needed("trigger_id"))
    return _shown(call, call.context.views.open(user, payload))


def _push(call: Call) -> Json:
    payload = _payload(call, "modal")
    user = call.context.triggers.redeem(call.needed("trigger_id"))
    return _shown(call, call.context.views.push(user, payload))


def _update(call: Call) -> Json:
    view = call.context.views.find(
        view_id=call.word("view_id"), external_id=call.word("external_id")
    )
    payload = _payload(call, str(view.payload["type"]))
    return _shown(call, call.context.views.update(view, payload, expected_hash=call.word("hash")))


def _publish(call: Call) -> Json:
    payload = _payload(call, "home")
    user = call.workspace.person(call.needed("user_id")).user_id
    if user in call.workspace.deactivated:
        raise SlackError("user_disabled")
    view = call.context.views.publish(user, payload, expected_hash=call.word("hash"))
    return _shown(call, view)


METHODS: Methods = {
    "views.open": _open,
    "views.push": _push,
    "views.update": _update,
    "views.publish": _publish,
}
