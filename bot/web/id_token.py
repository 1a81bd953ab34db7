"""ID tokens: what a provider signed about who somebody is, believed or not. Pure.

Source: https://openid.net/specs/openid-connect-core-1_0.html#IDTokenValidation
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from bot.model.text import escape_to_one_line
from bot.policy import Organisation, Person

# How far the provider's clock may be from ours.
LEEWAY_SECONDS = 60
# Only what a private key makes: with a shared secret, or with none, anybody could have signed.
_TRUSTED_ALGORITHMS = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "EdDSA",
)

SLACK_ISSUER = "https://slack.com"
# Source: https://docs.slack.dev/authentication/sign-in-with-slack/
_TEAM, _USER = "https://slack.com/team_id", "https://slack.com/user_id"
_SLACK_ENTERPRISE_CLAIM = "https://slack.com/enterprise_id"


class InvalidIdTokenError(Exception):
    """A token that proves nothing to us. The message says what is wrong with it."""


class UnknownSigningKeyError(InvalidIdTokenError):
    """It is signed by a key that is not among those that we know; there may be new ones."""


@dataclass(frozen=True)
class ExpectedClaims:
    """What a token must say. now: seconds since 1970. access_token: that came along with it."""

    issuer: str
    client_id: str
    nonce: str
    now: int
    access_token: str = ""


def list_trusted_algorithms(offered_algorithms: object) -> list[str]:
    """Return by which algorithms we believe a provider; offered: what it says it signs by."""
    said = (
        cast("list[object]", offered_algorithms)
        if isinstance(offered_algorithms, list)
        else ["RS256"]
    )
    return [way for way in _TRUSTED_ALGORITHMS if way in said]


def verify_id_token(
    token: str, keys: Mapping[str, Any], *, algorithms: Sequence[str], expected: ExpectedClaims
) -> Mapping[str, Any]:
    """Return what the token says. keys: the provider's key set. Raises NotBelieved.

    Not loaded until somebody signs in so: authlib, joserfc.
    """
    from authlib.oidc.core import CodeIDToken
    from joserfc import jwt
    from joserfc.errors import InvalidKeyIdError, JoseError
    from joserfc.jwk import KeySet

    if not algorithms:
        # An empty list would mean the library's own, and those with shared secrets are among them.
        raise InvalidIdTokenError("the provider signs in no way that can be trusted")
    try:
        decoded = jwt.decode(token, KeySet.import_key_set(cast("Any", keys)), list(algorithms))
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
        raise UnknownSigningKeyError(escape_to_one_line(str(unknown))) from None
    except (JoseError, ValueError, TypeError, KeyError) as trouble:
        raise InvalidIdTokenError(
            escape_to_one_line(str(trouble) or type(trouble).__name__)
        ) from None
    return claims


def find_person_of_claims(
    claims: Mapping[str, Any], organisation: Organisation, *, issuer: str, is_slack: bool
) -> Person | None:
    """Return whom of the policy a believed token names; None for strangers.

    slack: by the ids of their Slack account and by nothing else. Otherwise by the subject that the
    policy holds for them, or by an address that is verified where the policy says so.
    """
    if is_slack:
        return organisation.find_by_slack(
            team=_get_text_claim(claims, _TEAM),
            enterprise=_get_text_claim(claims, _SLACK_ENTERPRISE_CLAIM) or None,
            user=_get_text_claim(claims, _USER),
        )
    known = organisation.find_by_oidc(issuer=issuer, subject=_get_text_claim(claims, "sub"))
    if known is None and claims.get("email_verified") is True:
        known = organisation.find_by_email(issuer=issuer, email=_get_text_claim(claims, "email"))
    return known


def format_account_entry(claims: Mapping[str, Any], *, is_slack: bool) -> str:
    """Return what whoever keeps the policy has to put into it for this account."""
    if is_slack:
        return escape_to_one_line(
            f"{{team: {_get_text_claim(claims, _TEAM)}, user: {_get_text_claim(claims, _USER)}}}"
        )
    issuer, subject = _get_text_claim(claims, "iss"), _get_text_claim(claims, "sub")
    return escape_to_one_line(f"{{issuer: {json.dumps(issuer)}, subject: {json.dumps(subject)}}}")


def _get_text_claim(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    return value[:255] if isinstance(value, str) else ""
