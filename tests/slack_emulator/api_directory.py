"""Web API: auth.*, users.* and usergroups.*"""

from tests.slack_emulator.calls import Call, Methods
from tests.slack_emulator.people_json import group_json, user_by_email, user_json
from tests.slack_emulator.wire import Json, SlackError


def _auth_test(call: Call) -> Json:
    app = call.workspace.app
    return {
        "url": call.context.url() + "/",
        "team": app.team_name,
        "user": app.bot_name,
        "team_id": app.team_id,
        "user_id": app.bot_user_id,
        "bot_id": app.bot_id,
        "app_id": app.app_id,
        "is_enterprise_install": False,
    }


def _user_info(call: Call) -> Json:
    return {"user": user_json(call.workspace, call.needed("user"))}


def _user_list(call: Call) -> Json:
    ids = [*call.workspace.people, call.workspace.app.bot_user_id]
    members = [user_json(call.workspace, user_id) for user_id in ids]
    return {"members": members, "response_metadata": {"next_cursor": ""}}


def _user_by_email(call: Call) -> Json:
    return {"user": user_by_email(call.workspace, call.needed("email"))}


def _group_list(call: Call) -> Json:
    groups = [group_json(call.workspace, group) for group in call.workspace.groups.values()]
    return {"usergroups": groups}


def _group_members(call: Call) -> Json:
    group = call.workspace.groups.get(call.needed("usergroup"))
    if group is None:
        raise SlackError("no_such_subteam")
    gone = call.workspace.deactivated
    return {"users": [user for user in group.members if user not in gone]}


METHODS: Methods = {
    "auth.test": _auth_test,
    "users.info": _user_info,
    "users.list": _user_list,
    "users.lookupByEmail": _user_by_email,
    "usergroups.list": _group_list,
    "usergroups.users.list": _group_members,
}
