"""Who and what there is in the emulator's workspace, as the builder names them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class EmulatedPerson:
    """One person whom the emulator can act as.

    user_id: Slack's id, U…. name: the short name, used after @. display: the full name.
    title: what this person is here, such as "developer"; shown beside the name.
    guest: a restricted account of the workspace.
    """

    user_id: str
    name: str
    display: str
    title: str = ""
    email: str = ""
    guest: bool = False


@dataclass(frozen=True)
class EmulatedChannel:
    """One channel. `members` names user ids; empty means everyone.

    bot_inside: whether the bot was invited; it cannot post where it was not.
    """

    channel_id: str
    name: str
    topic: str = ""
    private: bool = False
    members: frozenset[str] = frozenset()
    bot_inside: bool = True


@dataclass(frozen=True)
class EmulatedGroup:
    """One user group: S… id, handle without @, and the user ids of its members."""

    group_id: str
    handle: str
    name: str
    members: tuple[str, ...] = ()


@dataclass(frozen=True)
class EmulatedCommand:
    """One slash command of the bot, with the hint that Slack shows while it is typed."""

    name: str
    usage: str = ""
    description: str = ""


@dataclass(frozen=True)
class EmulatedShortcut:
    """One shortcut of the bot: on the app (global), or in a message's menu."""

    callback_id: str
    name: str
    on_message: bool = False


@dataclass(frozen=True)
class Installation:
    """The bot as it is installed in the emulator's workspace."""

    team_id: str = "T0EMULATOR"
    team_domain: str = "emulator"
    team_name: str = "Emulator"
    app_id: str = "A0KEYTURN"
    bot_id: str = "B0KEYTURN"
    bot_user_id: str = "U0KEYTURN"
    bot_name: str = "keyturn"
    bot_display: str = "Keyturn"
    commands: tuple[EmulatedCommand, ...] = (
        EmulatedCommand("/keyturn", "help", "Ask for a run, or see what is going on"),
    )
    shortcuts: tuple[EmulatedShortcut, ...] = ()
    groups: tuple[EmulatedGroup, ...] = ()
    # What the bot may do, as its manifest asks for it.
    scopes: tuple[str, ...] = ()
    # Hosts whose links it unfurls.
    unfurl_domains: tuple[str, ...] = ()


# Who speaks when the emulator itself has something to say, as Slackbot does.
SYSTEM_USER = "USLACKBOT"
