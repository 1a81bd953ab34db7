"""Request on a new host what Keyturn has set on another, as one request."""

from bot.db.runs import NewRun
from bot.features.rebuild.readings import Rebuild, SetValue, read_rebuild
from bot.model.errors import InvalidRequestError
from bot.model.request_form import format_request, get_field_texts
from bot.model.run import RequestTerms, Run
from bot.model.sequence import LEFT_OUT, REBUILD
from bot.model.view_rights import ViewRights
from bot.queries.folded_runs import describe_left_out
from bot.workflow.context import WorkflowContext
from bot.workflow.hooks import read_value_facts
from bot.workflow.requests import check_host, get_terms_of_run
from bot.workflow.sequences import record_sequence
from connectors.errors import UnknownHostError
from runbooks import AnyRunbook


class RebuildActions:
    """What people may do about what Keyturn has set on a host."""

    def __init__(self, context: WorkflowContext) -> None:
        self._context = context

    def read_rebuild(self, host: str, *, view_rights: ViewRights | None) -> Rebuild:
        """Return what Keyturn has set on a host, from the runs that may be viewed."""
        with self._context.database.reading(view_rights) as tx:
            facts = read_value_facts(self._context, tx, host)
            return read_rebuild(tx, self._context.runbooks, host, facts)

    def request_rebuild(self, host: str, terms: RequestTerms, *, new_host: str) -> Run:
        """Request on a new host what Keyturn has set on another, as one request.

        Raises:
            InvalidRequestError: The new host is not in the inventory or cannot have a value, or
                there is nothing to set.
        """
        policy = self._context.policies.get_policy()
        with self._context.database.reading(policy.get_view_rights(terms.person)) as tx:
            facts = read_value_facts(self._context, tx, host)
            rebuild = read_rebuild(tx, self._context.runbooks, host, facts)
            name = policy.get_person_name(terms.person)
            left_out = describe_left_out(tx, rebuild.hidden_keys, name)
        if not rebuild.values:
            why = f". Left out: {left_out}" if left_out else ""
            raise InvalidRequestError(f"no value that Keyturn has set on {host} is known{why}")
        requests = [_build_request(self._context, one, new_host) for one in rebuild.values]
        for request in requests:
            check_host(policy, request)
        try:
            area = policy.get_area(new_host).name
        except UnknownHostError as error:
            raise InvalidRequestError(str(error)) from None
        parts = [
            NewRun(
                runbook=request.words,
                kind="change",
                values=get_field_texts(request),
                request=format_request(request),
                host=new_host,
                area=area,
                **get_terms_of_run(terms),
            )
            for request in requests
        ]
        title = f"{REBUILD} {host} on {new_host}"
        return record_sequence(
            self._context,
            policy,
            parts,
            runbook=REBUILD,
            title=title,
            facts={LEFT_OUT: left_out} if left_out else {},
        )


def _build_request(context: WorkflowContext, value: SetValue, host: str) -> AnyRunbook:
    run = value.run
    try:
        return context.runbooks[run.runbook].model_validate({**run.values, "host": host})
    except (KeyError, ValueError):
        raise InvalidRequestError(
            f"{value.key} cannot be set any more: the fields of {run.runbook} have changed"
        ) from None
