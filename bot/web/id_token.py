"""Verify OpenID Connect ID tokens and find the person they name. Pure.

Source: https://openid.net/specs/openid-connect-core-1_0.html#IDTokenValidation
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from bot.model.text import escape_to_one_line
from bot.policy import Organisation, Person

# Accepted difference between the clocks of the provider and of Keyturn.
LEEWAY_SECONDS = 60
# Asymmetric signatures only: without a private key, others could have signed the token.
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
    """The token cannot be trusted. The message says why."""


class UnknownSigningKeyError(InvalidIdTokenError):
    """The token is signed with an unknown key. The provider may have new keys."""


@dataclass(frozen=True)
class ExpectedClaims:
    """Claims that a token has to contain."""

    issuer: str
    client_id: str
    nonce: str
    now: int
    """Seconds since 1970."""
    access_token: str = ""
    """The access token that came with the ID token."""


def list_trusted_algorithms(offered_algorithms: object) -> list[str]:
    """Return the trusted algorithms among those that the provider offers."""
    offered = (
        cast("list[object]", offered_algorithms)
        if isinstance(offered_algorithms, list)
        else ["RS256"]
    )
    return [algorithm for algorithm in _TRUSTED_ALGORITHMS if algorithm in offered]


def verify_id_token(
    token: str, keys: Mapping[str, Any], *, algorithms: Sequence[str], expected: ExpectedClaims
) -> Mapping[str, Any]:
    """Return the claims of a token, after checking its signature and claims.

    authlib and joserfc are imported here, so that they are loaded only when someone signs in.

    Args:
        token: The ID token.
        keys: Key set of the provider.
        algorithms: Accepted signature algorithms.
        expected: Required claims.

    Raises:
        UnknownSigningKeyError: The key set lacks the key of the token.
        InvalidIdTokenError: The token cannot be trusted.
    """
    from authlib.oidc.core import CodeIDToken
    from joserfc import jwt
    from joserfc.errors import InvalidKeyIdError, JoseError
    from joserfc.jwk import KeySet

    if not algorithms:
        # joserfc reads an empty list as its defaults, which include shared secrets.
        raise InvalidIdTokenError("the provider offers no trusted signature algorithm")
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
    except InvalidKeyIdError as error:
        raise UnknownSigningKeyError(escape_to_one_line(str(error))) from None
    except (JoseError, ValueError, TypeError, KeyError) as error:
        raise InvalidIdTokenError(escape_to_one_line(str(error) or type(error).__name__)) from None
    return claims


def find_person_of_claims(
    claims: Mapping[str, Any], organisation: Organisation, *, issuer: str, is_slack: bool
) -> Person | None:
    """Return the person of the policy that the claims name, or None.

    With *is_slack*, only the ids of the Slack account count. Otherwise the person is found by the
    subject in the policy, or by a verified email address if the policy allows that.
    """
    if is_slack:
        return organisation.find_by_slack(
            team=_get_text_claim(claims, _TEAM),
            enterprise=_get_text_claim(claims, _SLACK_ENTERPRISE_CLAIM) or None,
            user=_get_text_claim(claims, _USER),
        )
    person = organisation.find_by_oidc(issuer=issuer, subject=_get_text_claim(claims, "sub"))
    if person is None and organisation.provisioning:
        claim = organisation.provisioning.subject_claim
        subject = _get_text_claim(claims, claim)
        person = organisation.find_by_oidc(issuer=issuer, subject=subject, claim=claim)
    if person is None and claims.get("email_verified") is True:
        person = organisation.find_by_email(issuer=issuer, email=_get_text_claim(claims, "email"))
    return person


def format_account_entry(claims: Mapping[str, Any], *, is_slack: bool) -> str:
    """Return the entry of people.yaml for this account."""
    if is_slack:
        return escape_to_one_line(
            f"{{team: {_get_text_claim(claims, _TEAM)}, user: {_get_text_claim(claims, _USER)}}}"
        )
    issuer, subject = _get_text_claim(claims, "iss"), _get_text_claim(claims, "sub")
    return escape_to_one_line(f"{{issuer: {json.dumps(issuer)}, subject: {json.dumps(subject)}}}")


def _get_text_claim(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    return value[:255] if isinstance(value, str) else ""
