"""Web API: apps.*"""

from tests.slack_emulator.calls import Call, Methods
from tests.slack_emulator.wire import Json


def _open_connection(call: Call) -> Json:
    scheme, _, rest = call.context.url().partition("://")
    secure = "wss" if scheme == "https" else "ws"
    return {"url": f"{secure}://{rest}/link?ticket={call.context.sockets.ticket()}"}


METHODS: Methods = {"apps.connections.open": _open_connection}

# What is asked for with the app's own token, and not with the bot's.
OF_THE_APP = frozenset(METHODS)
