"""What people do about values that changed outside Keyturn: restore, adopt, expect."""

from collections.abc import Callable
from dataclasses import replace

from bot.audit import change_log, events, refusals
from bot.db import runs
from bot.db.database import Transaction
from bot.features.drift import rows
from bot.features.drift.details import get_answer_right
from bot.features.drift.rows import DriftKey
from bot.features.drift.state import Expectation, compute_next_reading, find_number, parse_range
from bot.features.drift.watch import log_end
from bot.model.drift_state import DriftState
from bot.model.errors import InvalidRequestError, NotAllowed, StepUpRequired, TooLate
from bot.model.run import RequestTerms, Run
from bot.model.times import DAY, SECOND
from bot.policy import PolicyRequest
from bot.queries.second_factor import get_shown_factor
from bot.workflow import requests
from bot.workflow.context import WorkflowContext
from bot.workflow.requests import check_reason

# A host is not read more often on demand.
_READ_INTERVAL = 10 * SECOND
_LONGEST_EXPECTATION = 366 * DAY


class DriftActions:
    """What people do about drift. Methods that name a key raise NoSuchKeyError."""

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context

    def read_host_now(self, host: str, *, person: str) -> int:
        """Have the watched values of a host read within seconds; return how many that are.

        Those that were read in the last ten seconds are not read again. Raises NotAllowed and
        InvalidRequestError.
        """
        policy = self._context.policies.get_policy()
        if host not in policy.inventory.hosts:
            raise InvalidRequestError(f"{host} is not in the inventory")
        with self._context.database.reading(policy.get_view_rights(person)) as tx:
            keys = rows.list_keys(tx, host=host)
            for runbook in {runs.get_run(tx, key.run).runbook for key in keys}:
                reading = PolicyRequest(
                    runbook, "change", host, "web", requested_by=person, now=tx.now
                )
                ruling = policy.get_request_ruling(reading)
                if not ruling.allowed:
                    raise NotAllowed(
                        f"only people who can request {runbook} on {host} can have it read: "
                        f"{ruling.refusal_reason}"
                    )
        if not keys:
            return 0
        with self._context.database.transaction() as tx:
            return rows.request_readings(tx, host, read_before=tx.now - _READ_INTERVAL)

    def restore_value(self, number: int, terms: RequestTerms) -> Run:
        """Request again what set the value: a new run, planned and approved like any other."""
        policy = self._context.policies.get_policy()
        with self._context.database.reading(policy.get_view_rights(terms.person)) as tx:
            key = rows.get_key(tx, number)
            run = runs.get_run(tx, key.run)
        if key.adopted:
            raise InvalidRequestError(
                f"{key.name} has an adopted value, which Keyturn did not set: request "
                f"{run.runbook} with the value that you want"
            )
        runbook = self._context.runbooks.get(run.runbook)
        if runbook is None:
            raise InvalidRequestError(f"the runbook {run.runbook} does not exist any more")
        try:
            request = runbook.model_validate(run.values)
        except ValueError:
            raise InvalidRequestError(
                f"the fields of {run.runbook} have changed: request it again"
            ) from None
        return requests.create_request(self._context, request, terms)

    def adopt_value(self, number: int, *, person: str, reason: str, session: str = "") -> DriftKey:
        """Accept the value that is on the host now; nothing is sent.

        session: the web session, in which a second factor may have been entered.
        Raises NotAllowed, StepUpRequired, TooLate and InvalidRequestError.
        """

        def adopt(tx: Transaction, key: DriftKey) -> DriftKey:
            if key.state is not DriftState.CHANGED:
                raise TooLate(f"{key.name} on {key.host} is {key.state.label}: nothing to adopt")
            adopted = events.DriftAdopted(
                key=key.name,
                reason=check_reason(reason),
                value=key.value,
                set_value=key.set_value,
            )
            change_log.append_entry(tx, adopted, run=key.run, person=person, host=key.host)
            log_end(tx, key)
            return replace(_end_drift(tx, key), adopted=key.digest, set_value=key.value)

        return self._answer(number, person, reason, session, adopt)

    def expect_value(
        self,
        number: int,
        *,
        person: str,
        until: int,
        value_range: str = "",
        reason: str,
        session: str = "",
    ) -> DriftKey:
        """Let the value vary until a time.

        Args:
            until: Microseconds since 1970, at most a year from now.
            value_range: The numbers between which it may vary: `1000..2000`; "" for any value.
            session: As for adopt_value(), and the same errors.
        """
        try:
            lowest, highest = parse_range(value_range) if value_range else (None, None)
        except ValueError as error:
            raise InvalidRequestError(str(error)) from None
        expectation = Expectation(until, lowest, highest)

        def expect(tx: Transaction, key: DriftKey) -> DriftKey:
            if not tx.now < until <= tx.now + _LONGEST_EXPECTATION:
                raise InvalidRequestError("enter a time within the next year")
            if lowest is not None and find_number(key.value or key.set_value) is None:
                raise InvalidRequestError(
                    f"{key.value or key.set_value} is no number: leave the range empty"
                )
            expected = events.DriftExpected(
                key=key.name,
                reason=check_reason(reason),
                until=until,
                range=rows.format_range(expectation),
                value=key.value,
            )
            change_log.append_entry(tx, expected, run=key.run, person=person, host=key.host)
            is_covered = key.state is DriftState.CHANGED and expectation.covers(
                key.value, now=tx.now
            )
            if is_covered:
                log_end(tx, key)
                key = _end_drift(tx, key)
            # It is read again when the expectation lapses.
            return replace(key, expectation=expectation, next_at=min(key.next_at, until))

        return self._answer(number, person, reason, session, expect)

    def _answer(
        self,
        number: int,
        person: str,
        reason: str,
        session: str,
        act: Callable[[Transaction, DriftKey], DriftKey],
    ) -> DriftKey:
        """Check that the person may answer, and store what *act* returns."""
        if not check_reason(reason):
            raise InvalidRequestError("give a reason: it is recorded in the change log")
        policy = self._context.policies.get_policy()
        with self._context.database.reading(policy.get_view_rights(person)) as tx:
            rows.get_key(tx, number)
        with self._context.database.transaction() as tx:
            key = rows.lock_key(tx, number)
            run = runs.get_run(tx, key.run)
            right = get_answer_right(policy, run, person=person, now=tx.now)
            factor = get_shown_factor(tx, policy, person=person, session=session)
            lacks_factor = not right.refusal and right.needs_factor and not factor
            refusal = right.refusal or (
                "this needs your second factor: decide it on the web page" if lacks_factor else ""
            )
            if refusal:
                refusals.log_person_refusal(
                    tx,
                    events.DriftAnswerRefused(key=key.name, reason=refusal),
                    person=person,
                    run=run,
                )
            else:
                key = act(tx, key)
                rows.store_key(tx, key)
        if lacks_factor:
            raise StepUpRequired(refusal)
        if refusal:
            raise NotAllowed(refusal)
        return key


def _end_drift(tx: Transaction, key: DriftKey) -> DriftKey:
    next_at = compute_next_reading(key.host, DriftState.AS_SET, now=tx.now)
    return replace(
        key,
        state=DriftState.AS_SET,
        since_at=tx.now,
        good_at=tx.now,
        next_at=next_at,
        candidates=(),
        expectation=None,
    )
