"""Accounts of an identity provider, for tests."""

from pathlib import Path

from bot.features.scim.actions import Account, PeopleActions, check_account
from bot.features.scim.rows import GroupRow, UserRow
from tests.bot.harness import Harness

ISSUER = "https://idp.example.com"
PROVISIONING = (
    f'provisioning: {{issuer: "{ISSUER}", groups: {{Platform: [developer], Night: [night]}}}}\n'
)


def add_provisioning(directory: Path, section: str = PROVISIONING) -> None:
    """Let a provider add and remove people of a policy, and give each person an address."""
    file = directory / "people.yaml"
    text = file.read_text()
    for name in ("dora", "olga", "adam", "stan"):
        text = text.replace(f"  {name}: {{", f"  {name}: {{email: {name}@example.com, ")
    file.write_text(text + section)


def bind(directory: Path, person: str, account: str) -> None:
    """Write the account of a person to people.yaml."""
    file = directory / "people.yaml"
    file.write_text(
        file.read_text().replace(f"  {person}: {{", f"  {person}: {{provisioned: {account}, ")
    )


def build_account(
    user_name: str,
    *,
    is_active: bool = True,
    name: str = "",
    email: str = "",
    external_id: str = "",
) -> Account:
    return check_account(
        user_name=user_name,
        external_id=external_id or f"id-of-{user_name}",
        names=[name],
        email=email or user_name,
        is_active=is_active,
        document={"active": is_active},
    )


class Provider:
    """What an identity provider does to an installation, without HTTP."""

    def __init__(self, harness: Harness) -> None:
        self.actions = harness.service.bind(PeopleActions)

    def add(
        self, user_name: str, *, name: str = "", email: str = "", external_id: str = ""
    ) -> UserRow:
        account = build_account(user_name, name=name, email=email, external_id=external_id)
        return self.actions.change(lambda change: change.create_user(account))

    def change(self, user: UserRow, account: Account) -> UserRow:
        return self.actions.change(lambda change: change.update_user(user, account))

    def set_active(self, user: UserRow, *, is_active: bool) -> UserRow:
        return self.change(user, build_account(user.user_name, is_active=is_active))

    def delete(self, user: UserRow) -> None:
        self.actions.change(lambda change: change.delete_user(user))

    def add_group(self, name: str, *members: UserRow) -> GroupRow:
        ids = [one.user_id for one in members]
        return self.actions.change(lambda change: change.create_group(name, "", ids))

    def set_members(self, group: GroupRow, *members: UserRow) -> GroupRow:
        ids = [one.user_id for one in members]
        return self.actions.change(lambda change: change.update_group(group, group.name, "", ids))
