"""People and user groups as Slack writes them down."""

from tests.slack_emulator.directory import EmulatedGroup
from tests.slack_emulator.wire import Json, SlackError
from tests.slack_emulator.workspace import Workspace


def user_json(workspace: Workspace, user_id: str) -> Json:
    """Return one user, the bot's own included."""
    app = workspace.app
    if user_id == app.bot_user_id:
        return _user(workspace, user_id, app.bot_name, app.bot_display) | {
            "is_bot": True,
            "profile": _profile(workspace, app.bot_display, "") | {"bot_id": app.bot_id},
        }
    person = workspace.person(user_id)
    shown = _user(workspace, user_id, person.name, person.display)
    shown["is_restricted"] = person.guest
    shown["profile"] |= {"title": person.title, "email": person.email}
    return shown


def _user(workspace: Workspace, user_id: str, name: str, display: str) -> Json:
    return {
        "id": user_id,
        "team_id": workspace.app.team_id,
        "name": name,
        "real_name": display,
        "deleted": user_id in workspace.deactivated,
        "color": "9f69e7",
        "locale": "en-GB",
        "tz": "Etc/UTC",
        "tz_label": "Coordinated Universal Time",
        "tz_offset": 0,
        "is_bot": False,
        "is_app_user": False,
        "is_admin": False,
        "is_owner": False,
        "is_primary_owner": False,
        "is_restricted": False,
        "is_ultra_restricted": False,
        "is_stranger": False,
        "is_email_confirmed": True,
        "who_can_share_contact_card": "EVERYONE",
        "updated": int(workspace.now()),
        "profile": _profile(workspace, display, name),
    }


def _profile(workspace: Workspace, display: str, name: str) -> Json:
    first, _, last = display.partition(" ")
    pictures = {f"image_{size}": "" for size in (24, 32, 48, 72, 192, 512)}
    return pictures | {
        "title": "",
        "phone": "",
        "skype": "",
        "real_name": display,
        "real_name_normalized": display,
        "first_name": first,
        "last_name": last,
        "display_name": name,
        "display_name_normalized": name,
        "avatar_hash": "",
        "status_text": "",
        "status_text_canonical": "",
        "status_emoji": "",
        "status_emoji_display_info": [],
        "status_expiration": 0,
        "fields": {},
        "team": workspace.app.team_id,
    }


def user_by_email(workspace: Workspace, email: str) -> Json:
    for person in workspace.people.values():
        active = person.user_id not in workspace.deactivated
        if active and person.email and person.email.lower() == email.lower():
            return user_json(workspace, person.user_id)
    raise SlackError("users_not_found")


def group_json(workspace: Workspace, group: EmulatedGroup) -> Json:
    return {
        "id": group.group_id,
        "team_id": workspace.app.team_id,
        "is_usergroup": True,
        "handle": group.handle,
        "name": group.name,
        "description": "",
        "date_delete": 0,
        "user_count": len(group.members),
        "users": list(group.members),
    }
