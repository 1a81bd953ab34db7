"""The neighbours: systems beside us that the settings name, and what we speak to them with."""

from bot import trail
from bot.api.telling import standing
from bot.custody.housekeeping import note
from bot.hooks import written
from bot.hooks.written import Hooks
from bot.redaction import Redactor
from bot.settings import Settings
from bot.store.database import Database
from bot.web.id_token import SLACK_ISSUER
from bot.web.parts import Condition
from bot.web.provider import Provider, Registration


def provider(settings: Settings) -> Provider | None:
    """Return whom people can prove to who they are, if there is somebody."""
    if not settings.oidc_client_id:
        return None
    issuer = settings.oidc_issuer
    claims = settings.oidc_claims or ("slack" if issuer == SLACK_ISSUER else "subject")
    endpoints = {
        "authorization_endpoint": settings.oidc_authorization,
        "token_endpoint": settings.oidc_token,
        "jwks_uri": settings.oidc_keys,
    }
    usual = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    return Provider(
        Registration(
            issuer,
            settings.oidc_client_id,
            settings.oidc_client_secret.get_secret_value(),
            settings.oidc_name,
            slack=claims == "slack",
            discovery=settings.oidc_discovery or usual,
            endpoints={name: address for name, address in endpoints.items() if address},
        )
    )


def hooks(settings: Settings, database: Database, redactor: Redactor) -> Hooks:
    """Return the hooks that are set, and note which they are. Raises BadHooks."""
    found = written.read(settings.hooks)
    redactor.register(*found.secrets)
    if settings.hooks is not None:
        with database.transaction() as tx:
            note(tx, written.KIND, hooks=written.shown(found))
    return found


def reached(cut: int) -> Condition:
    """Say how hosts behave. cut: connections that we hung up on in the last minutes.

    Which hosts they lead to is not for strangers, and one bad host is no reason to serve nobody.
    """
    if not cut:
        return Condition("no host floods us")
    many = "1 connection was" if cut == 1 else f"{cut} connections were"
    return Condition(f"{many} cut lately, since hosts flooded us: the service's log says which")


def told(database: Database) -> Condition:
    """Say how many could not be told of what happened: a warning, for everything else works."""
    return Condition(standing(database))


def export_spans(settings: Settings) -> None:
    """Have spans sent to the collector that the environment names. Raises NotInstalled."""
    from bot import tracing

    if tracing.wanted():
        trail.export_to(tracing.Tracing(settings.address))
