"""What a server runs to write notes: one sender, whose failures readiness names."""

from bot.feature import ServerContext, ServerPart
from bot.features.ticket_notes.sender import TicketNotes
from bot.integrations.webhook_queue import describe_deliveries
from bot.web.deps import ComponentHealth


def build_server_part(context: ServerContext) -> ServerPart:
    settings, database = context.settings, context.database
    sender = TicketNotes(database, context.policies, settings.address)
    has_system = (settings.policy / "tickets.yaml").exists()
    checks = {"subscriptions": lambda: ComponentHealth(describe_deliveries(database))}
    return ServerPart(tasks=[sender.run], health_checks=checks if has_system else {})
