"""Write a note to the change ticket when its run starts, and when it ends."""

from bot.audit import events
from bot.db import runs
from bot.db.database import Database, Transaction
from bot.feature import ServerContext, ServerPart
from bot.features.tickets.systems import add_note
from bot.integrations.delivery_sender import DeliverySender
from bot.integrations.safe_http import DeliveryError
from bot.integrations.webhook_queue import PendingDelivery, SubscriptionFilter, describe_deliveries
from bot.model.references import hide_references
from bot.model.run import Run, format_approvers
from bot.policy import NoPolicyError, Policy, PolicySource
from bot.web.deps import ComponentHealth

# The name of the subscription, which no webhook can have.
TICKET_NOTES = "ticket notes"
_KINDS = (
    events.Started.kind,
    events.Succeeded.kind,
    events.Failed.kind,
    events.OutcomeUnknown.kind,
    events.Stopped.kind,
)


class TicketNotes(DeliverySender):
    """Writes notes while tickets.yaml names a system. base_url: of the web pages, or ""."""

    def __init__(self, database: Database, policies: PolicySource, base_url: str) -> None:
        wanted = SubscriptionFilter(("change",), frozenset(), _KINDS, with_ticket=True)
        super().__init__(TICKET_NOTES, database, wanted)
        self._policies, self._base_url = policies, base_url.rstrip("/")

    def send_due(self) -> bool:
        """Write the notes that are due; return whether any was written."""
        try:
            tickets = self._policies.get_policy().tickets
        except NoPolicyError:
            return False
        return tickets is not None and super().send_due()

    def send_delivery(self, item: PendingDelivery) -> None:
        """Write one note. Raises DeliveryError and NoSuchRun."""
        try:
            policy = self._policies.get_policy()
        except NoPolicyError as error:
            raise DeliveryError(str(error)) from None
        if policy.tickets is None:
            raise DeliveryError("tickets.yaml was removed", for_good=True)
        with self._database.reading() as tx:
            run = runs.get_run(tx, item.run)
            text = self._format_note(tx, policy, run, item.kind)
        add_note(policy.tickets, run.ticket, text, note_id=f"{TICKET_NOTES}-{item.seq}")

    def _format_note(self, tx: Transaction, policy: Policy, run: Run, kind: str) -> str:
        page = f" {self._base_url}/runs/{run.id}" if self._base_url else ""
        if kind != events.Started.kind:
            return (
                f"Keyturn run {run.id}, {run.title}: {kind}. {hide_references(run.summary)}{page}"
            )
        requester = policy.describe_requester(run.requested_by, run.origin.agent)
        decisions = runs.list_decisions(tx, run.id)
        approvers = format_approvers(decisions, policy.person_names)
        facts = f"requested by {requester}{approvers}, plan {run.short_digest}"
        return f"Keyturn run {run.id}, {run.title}: {kind}, {facts}.{page}"


def build_server_part(context: ServerContext) -> ServerPart:
    """Return one sender, whose failures readiness names."""
    settings, database = context.settings, context.database
    sender = TicketNotes(database, context.policies, settings.address)
    has_system = (settings.policy / "tickets.yaml").exists()
    checks = {"subscriptions": lambda: ComponentHealth(describe_deliveries(database))}
    return ServerPart(tasks=[sender.run], health_checks=checks if has_system else {})
