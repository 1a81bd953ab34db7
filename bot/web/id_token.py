"""ID tokens: what a provider signed about who somebody is, believed or not. Pure.

Source: https://openid.net/specs/openid-connect-core-1_0.html#IDTokenValidation
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from bot.model.text import escape_to_one_line
from bot.policy import Household, Person

# How far the provider's clock may be from ours.
LEEWAY_SECONDS = 60
# Only what a private key makes: with a shared secret, or with none, anybody could have signed.
_BELIEVED = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")

SLACK_ISSUER = "https://slack.com"
# Source: https://docs.slack.dev/authentication/sign-in-with-slack/
_TEAM, _USER = "https://slack.com/team_id", "https://slack.com/user_id"
_ENTERPRISE = "https://slack.com/enterprise_id"


class NotBelieved(Exception):
    """A token that proves nothing to us. The message says what is wrong with it."""


class UnknownKey(NotBelieved):
    """It is signed by a key that is not among those that we know; there may be new ones."""


@dataclass(frozen=True)
class Expected:
    """What a token must say. now: seconds since 1970. access_token: that came along with it."""

    issuer: str
    client_id: str
    nonce: str
    now: int
    access_token: str = ""


def trusted_ways(offered: object) -> list[str]:
    """Return by which algorithms we believe a provider; offered: what it says it signs by."""
    said = cast("list[object]", offered) if isinstance(offered, list) else ["RS256"]
    return [way for way in _BELIEVED if way in said]


def believed(
    token: str, keys: Mapping[str, Any], *, ways: Sequence[str], expected: Expected
) -> Mapping[str, Any]:
    """Return what the token says. keys: the provider's key set. Raises NotBelieved.

    Not loaded until somebody signs in so: authlib, joserfc.
    """
    from authlib.oidc.core import CodeIDToken
    from joserfc import jwt
    from joserfc.errors import InvalidKeyIdError, JoseError
    from joserfc.jwk import KeySet

    if not ways:
        # An empty list would mean the library's own, and those with shared secrets are among them.
        raise NotBelieved("the provider signs in no way that can be trusted")
    try:
        decoded = jwt.decode(token, KeySet.import_key_set(cast("Any", keys)), list(ways))
        options = {
            "iss": {"essential": True, "value": expected.issuer},
            "aud": {"essential": True, "value": expected.client_id},
            "sub": {"essential": True},
        }
        params = {
            "nonce": expected.nonce,
            "client_id": expected.client_id,
            "access_token": expected.access_token,
        }
        claims: Any = CodeIDToken(decoded.claims, decoded.header, options, params)
        claims.validate(now=expected.now, leeway=LEEWAY_SECONDS)
    except InvalidKeyIdError as unknown:
        raise UnknownKey(escape_to_one_line(str(unknown))) from None
    except (JoseError, ValueError, TypeError, KeyError) as trouble:
        raise NotBelieved(escape_to_one_line(str(trouble) or type(trouble).__name__)) from None
    return claims


def whose(
    claims: Mapping[str, Any], household: Household, *, issuer: str, slack: bool
) -> Person | None:
    """Return whom of the policy a believed token names; None for strangers.

    slack: by the ids of their Slack account and by nothing else. Otherwise by the subject that the
    policy holds for them, or by an address that is verified where the policy says so.
    """
    if slack:
        return household.by_slack(
            team=_text(claims, _TEAM),
            enterprise=_text(claims, _ENTERPRISE) or None,
            user=_text(claims, _USER),
        )
    known = household.by_subject(issuer=issuer, subject=_text(claims, "sub"))
    if known is None and claims.get("email_verified") is True:
        known = household.by_email(issuer=issuer, email=_text(claims, "email"))
    return known


def named(claims: Mapping[str, Any], *, slack: bool) -> str:
    """Return what whoever keeps the policy has to put into it for this account."""
    if slack:
        return escape_to_one_line(
            f"{{team: {_text(claims, _TEAM)}, user: {_text(claims, _USER)}}}"
        )
    issuer, subject = _text(claims, "iss"), _text(claims, "sub")
    return escape_to_one_line(f"{{issuer: {json.dumps(issuer)}, subject: {json.dumps(subject)}}}")


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    return value[:255] if isinstance(value, str) else ""
