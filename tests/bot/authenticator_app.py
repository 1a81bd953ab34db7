"""Second factors for people in tests: an app that counts, a session, and a code shown in it."""

from dataclasses import dataclass
from typing import Any

from pyotp.totp import TOTP

from bot.auth import second_factors, sessions, totp
from bot.auth.second_factors import SecondFactor
from bot.db import tables
from tests.bot.office import Office
from tests.stamps import amend


@dataclass
class App:
    """An authenticator app in somebody's pocket, and a browser in which they are signed in."""

    office: Office
    person: str
    secret: str
    session: str

    def code(self, *, later: int = 0) -> str:
        """Return the code that it shows now, or some steps of half a minute later."""
        with self.office.database.reading() as tx:
            return TOTP(self.secret).at(tx.now // 1_000_000 + later * totp.STEP_SECONDS)

    def step_up(self, *, later: int = 0) -> None:
        code = self.code(later=later)
        self.office.workflow.step_up.step_up_by_code(self.person, self.session, code)

    @property
    def factor(self) -> SecondFactor:
        with self.office.database.reading() as tx:
            return second_factors.list_factors(tx, self.person)[0]

    def lose(self) -> None:
        """Have it forgotten."""
        self.office.workflow.factor_enrolment.remove_factor(self.person, self.factor.id)


def an_app(office: Office, person: str, *, confirmed_by: str = "policy") -> App:
    """Give somebody an app that counts; or, confirmed by nobody, one that does not."""
    secret = totp.create_secret()
    safe = office.parts.secret_box
    with office.database.transaction() as tx:
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
        return App(office, person, secret, sessions.begin_session(tx, person))


def stepped_up(office: Office, person: str) -> App:
    """Give somebody an app that counts, and have them show it."""
    app = an_app(office, person)
    app.step_up()
    return app


def age_step_ups(office: Office, seconds: int) -> None:
    """Let time pass since second factors were shown."""

    def older(row: Any) -> dict[str, object]:
        shown = row.stepped_up_at
        return {} if shown is None else {"stepped_up_at": shown - seconds * 1_000_000}

    with office.database.transaction() as tx:
        amend(tx, tables.session, older)
