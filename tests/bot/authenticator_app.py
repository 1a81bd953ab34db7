"""Second factors for people in tests: an authenticator app, a session, and a verified code."""

from dataclasses import dataclass
from typing import Any

from pyotp.totp import TOTP

from bot.auth import second_factors, sessions, totp
from bot.auth.second_factors import SecondFactor
from bot.db import tables
from tests.bot.harness import Harness
from tests.row_macs import change_rows


@dataclass
class AuthenticatorApp:
    """The authenticator app of a person, and a browser in which the person is signed in."""

    harness: Harness
    person: str
    secret: str
    session: str

    def code(self, *, later: int = 0) -> str:
        """Return the code that it shows now, or some steps of half a minute later."""
        with self.harness.database.reading() as tx:
            return TOTP(self.secret).at(tx.now // 1_000_000 + later * totp.STEP_SECONDS)

    def step_up(self, *, later: int = 0) -> None:
        code = self.code(later=later)
        self.harness.service.step_up.step_up_by_code(self.person, self.session, code)

    @property
    def factor(self) -> SecondFactor:
        with self.harness.database.reading() as tx:
            return second_factors.list_factors(tx, self.person)[0]

    def lose(self) -> None:
        """Have it forgotten."""
        self.harness.service.factor_enrolment.remove_factor(self.person, self.factor.id)


def enrol_app(harness: Harness, person: str, *, confirmed_by: str = "policy") -> AuthenticatorApp:
    """Give somebody an app that counts; or, confirmed by nobody, one that does not."""
    secret = totp.create_secret()
    safe = harness.context.secret_box
    with harness.database.transaction() as tx:
        added = second_factors.add_factor(
            tx,
            safe,
            person=person,
            kind=totp.TOTP_KIND,
            digest=totp.hash_secret(secret),
            secret=secret,
        )
        second_factors.mark_verified(tx, added, counter=0)
        if confirmed_by:
            second_factors.confirm_factor(tx, safe, added, confirmed_by=confirmed_by)
        return AuthenticatorApp(harness, person, secret, sessions.begin_session(tx, person))


def enrol_and_step_up(harness: Harness, person: str) -> AuthenticatorApp:
    """Give somebody an app that counts, and have them show it."""
    app = enrol_app(harness, person)
    app.step_up()
    return app


def age_step_ups(harness: Harness, seconds: int) -> None:
    """Let time pass since second factors were shown."""

    def older(row: Any) -> dict[str, object]:
        shown = row.stepped_up_at
        return {} if shown is None else {"stepped_up_at": shown - seconds * 1_000_000}

    with harness.database.transaction() as tx:
        change_rows(tx, tables.session, older)
