"""What a server runs for webhooks: the address of each source, and a sender for each target."""

from urllib.parse import urlsplit

from starlette.routing import Mount

from bot.audit import events
from bot.feature import ServerContext, ServerPart
from bot.features.webhooks.config import (
    WebhookConfig,
    load_webhook_config,
    render_webhook_config,
)
from bot.features.webhooks.receiver import WebhookReceiver, build_webhook_app
from bot.features.webhooks.sender import WebhookSender
from bot.integrations.webhook_queue import describe_deliveries
from bot.maintenance.housekeeping import log_setting_change
from bot.web.deps import ComponentHealth


def build_server_part(context: ServerContext) -> ServerPart:
    """Raises WebhookConfigError."""
    config, settings = _load_webhooks(context), context.settings
    receiver = WebhookReceiver(config, context.database, context.policies)
    is_https = urlsplit(settings.address).scheme == "https"
    senders = [
        WebhookSender(one, context.database, settings.address)
        for one in config.subscriptions.values()
    ]
    # A warning, because all else works.
    checks = {"subscriptions": lambda: ComponentHealth(describe_deliveries(context.database))}
    return ServerPart(
        tasks=[sender.run for sender in senders],
        routes=[Mount("/hooks", build_webhook_app(receiver, secure=is_https))],
        health_checks=checks if senders else {},
    )


def _load_webhooks(context: ServerContext) -> WebhookConfig:
    """Return the configured webhooks and log their change."""
    config = load_webhook_config(context.settings.hooks)
    context.redactor.add_secrets(*config.secrets)
    if context.settings.hooks is not None:
        with context.database.transaction() as tx:
            changed = events.WebhooksChanged(webhooks=render_webhook_config(config))
            log_setting_change(tx, changed)
    return config
