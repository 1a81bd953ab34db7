"""SCIM 2.0 as the service answers it, to scim2-tester and to what Entra and Okta really send.

Sources of the requests: Microsoft, *Develop and plan provisioning for a SCIM endpoint in
Microsoft Entra ID* (MicrosoftDocs/entra-docs, use-scim-to-provision-users-and-groups.md), and
Okta, *Okta and SCIM Version 2.0* (developer.okta.com/docs/api/openapi/okta-scim/guides/scim-20).
"""

import json
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bot.audit import change_log
from bot.features.scim.server import MEDIA_TYPE
from tests.bot.features.scim.accounts import add_provisioning
from tests.playground import sample_company
from tests.playground.service import Service
from tests.policies import INVENTORY

pytestmark = pytest.mark.real

TOKEN = "a-scim-token-of-more-than-32-characters"
USER = "urn:ietf:params:scim:schemas:core:2.0:User"
GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"

# As Entra creates a user, with attributes that Keyturn does not keep.
ENTRA_USER = {
    "schemas": [USER, ENTERPRISE],
    "externalId": "0a21f0f2-8d2a-4f8e-bf98-7363c4aed4ef",
    "userName": "Ines.Example@example.com",
    "active": True,
    "emails": [{"primary": True, "type": "work", "value": "ines@example.com"}],
    "meta": {"resourceType": "User"},
    "name": {"formatted": "Ines Example", "familyName": "Example", "givenName": "Ines"},
    "roles": [],
    ENTERPRISE: {"department": "Network"},
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Generator[Service]:
    directory: Path = tmp_path_factory.mktemp("scim")
    sample_company.create_policy(directory / "policy")
    (directory / "policy" / "inventory.yaml").write_text(INVENTORY)
    add_provisioning(directory / "policy")
    with pytest.MonkeyPatch.context() as patched:
        # The tester sends more at once than any provider.
        patched.setattr("bot.features.scim.server.BURST", 100_000)
        with Service(directory, slack="", scim_token=TOKEN) as service:
            yield service


@pytest.fixture
def client(service: Service) -> Generator[httpx2.Client]:
    with httpx2.Client(
        base_url=f"{service.address}/scim/v2",
        headers={"Authorization": f"Bearer {TOKEN}", "Content-Type": MEDIA_TYPE},
        timeout=60,
    ) as client:
        yield client
        # Each test begins without people and groups.
        for kind in ("Users", "Groups"):
            while found := client.get(f"/{kind}").json()["Resources"]:
                for one in found:
                    assert client.delete(f"/{kind}/{one['id']}").status_code == 204


def add_user(client: httpx2.Client, **values: object) -> str:
    answer = client.post("/Users", json={**ENTRA_USER, **values})
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def add_group(client: httpx2.Client, name: str, *members: str) -> str:
    body = {"schemas": [GROUP], "displayName": name, "members": [{"value": m} for m in members]}
    answer = client.post("/Groups", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


def patch(client: httpx2.Client, place: str, *operations: object) -> None:
    answer = client.patch(place, json={"schemas": [PATCH], "Operations": operations})
    assert answer.status_code == 204, answer.text


def list_members(client: httpx2.Client, group: str) -> list[str]:
    return [one["value"] for one in client.get(f"/Groups/{group}").json().get("members", [])]


def assert_refused(answer: httpx2.Response, status: int, scim_type: str | None = None) -> str:
    """Assert that an answer has the error format of SCIM, and return its detail."""
    body = answer.json()
    assert answer.headers["content-type"].partition(";")[0] == MEDIA_TYPE
    assert (answer.status_code, body["schemas"], body["status"], body.get("scimType")) == (
        status,
        [ERROR],
        str(status),
        scim_type,
    )
    return body["detail"]


@pytest.mark.timeout(240)
def test_scim2_tester_finds_nothing_wrong(client: httpx2.Client, service: Service) -> None:
    judged = subprocess.run(
        [sys.executable, "-m", "tests.bot.features.scim.judge", f"{service.address}/scim/v2"],
        input=TOKEN,
        capture_output=True,
        text=True,
        check=False,
    )
    assert judged.returncode == 0, judged.stderr
    results = json.loads(judged.stdout)
    assert [one for one in results if one["status"] not in {"SUCCESS", "SKIPPED"}] == []
    assert sum(one["status"] == "SUCCESS" for one in results) > 50
    assert client.get("/Users").json()["totalResults"] == 0


def test_entra_creates_finds_changes_and_disables_a_user(client: httpx2.Client) -> None:
    # The connection test, which looks for a user that there is not.
    nobody = {"filter": 'userName eq "2da5a1f2-5b3c-4a0e-8d5c-0a4b7d1f7c11"'}
    empty = client.get("/Users", params=nobody).json()
    assert (empty["totalResults"], empty["Resources"]) == (0, [])
    number = add_user(client)
    for query in (
        'userName eq "ines.example@EXAMPLE.com"',
        'externalId eq "0a21f0f2-8d2a-4f8e-bf98-7363c4aed4ef"',
        'emails[type eq "work"].value eq "ines@example.com"',
        'emails[type eq "work" and value eq "ines@example.com"]',
        'userName eq "Ines.Example@example.com" and active eq true',
    ):
        found = client.get("/Users", params={"filter": query})
        assert found.status_code == 200, (query, found.text)
        assert [one["id"] for one in found.json()["Resources"]] == [number], query
    patch(
        client,
        f"/Users/{number}",
        {"op": "Replace", "path": 'emails[type eq "work"].value', "value": "i2@example.com"},
        {"op": "Replace", "path": "name.familyName", "value": "Other"},
        {"op": "Add", "path": f"{ENTERPRISE}:department", "value": "Storage"},
        {"op": "Add", "path": 'phoneNumbers[type eq "work"].value', "value": "+1 555"},
    )
    user = client.get(f"/Users/{number}").json()
    assert (user["emails"][0]["value"], user["name"]["familyName"]) == ("i2@example.com", "Other")
    patch(client, f"/Users/{number}", {"op": "Replace", "path": "active", "value": "False"})
    assert client.get(f"/Users/{number}").json()["active"] is False
    patch(client, f"/Users/{number}", {"op": "Add", "path": "active", "value": "True"})
    assert client.get(f"/Users/{number}").json()["active"] is True
    assert client.delete(f"/Users/{number}").status_code == 204
    assert_refused(client.get(f"/Users/{number}"), 404)


def test_entra_changes_the_members_of_a_group(client: httpx2.Client) -> None:
    first = add_user(client)
    second = add_user(client, userName="b@example.com", externalId="b", emails=[])
    group = add_group(client, "Platform")
    query = {"excludedAttributes": "members", "filter": 'displayName eq "Platform"'}
    found = client.get("/Groups", params=query).json()["Resources"]
    assert [("members" in one, one["id"]) for one in found] == [(False, group)]
    members = [{"$ref": None, "value": first}, {"value": second}]
    patch(client, f"/Groups/{group}", {"op": "Add", "path": "members", "value": members})
    assert sorted(list_members(client, group)) == sorted([first, second])
    holds = {"filter": f'id eq "{group}" and members eq "{first}"'}
    assert client.get("/Groups", params=holds).json()["totalResults"] == 1
    patch(
        client,
        f"/Groups/{group}",
        {"op": "Remove", "path": "members", "value": [{"$ref": None, "value": first}]},
    )
    assert list_members(client, group) == [second]
    patch(client, f"/Groups/{group}", {"op": "Replace", "path": "displayName", "value": "Ops"})
    assert client.get(f"/Groups/{group}").json()["displayName"] == "Ops"


def test_okta_creates_replaces_and_deactivates_a_user(client: httpx2.Client) -> None:
    for kind, count in (("Users", 2), ("Groups", 100)):
        listed = client.get(f"/{kind}", params={"startIndex": 1, "count": count}).json()
        assert (listed["totalResults"], listed["startIndex"], listed["Resources"]) == (0, 1, [])
    body: dict[str, Any] = {
        "schemas": [USER],
        "userName": "ines@example.com",
        "name": {"givenName": "Ines", "familyName": "Example"},
        "emails": [{"primary": True, "value": "ines@example.com", "type": "work"}],
        "displayName": "Ines Example",
        "locale": "en-US",
        "externalId": "00ujl29u0le5T6Aj10h7",
        "groups": [],
        "password": "1mz050nq",
        "active": True,
    }
    made = client.post("/Users", json=body)
    assert (made.status_code, "1mz050nq" in made.text) == (201, False)
    number = made.json()["id"]
    replaced = client.put(f"/Users/{number}", json={**body, "id": number, "displayName": "I. E."})
    assert (replaced.status_code, replaced.json()["displayName"]) == (200, "I. E.")
    patch(client, f"/Users/{number}", {"op": "replace", "value": {"active": False}})
    assert client.get(f"/Users/{number}").json()["active"] is False
    again = client.post("/Users", json=body)
    assert "another account has" in assert_refused(again, 409, "uniqueness")


def test_okta_pushes_a_group(client: httpx2.Client) -> None:
    first = add_user(client)
    group = add_group(client, "Platform", first)
    patch(
        client,
        f"/Groups/{group}",
        {"op": "replace", "value": {"id": group, "displayName": "Platform team"}},
    )
    patch(client, f"/Groups/{group}", {"op": "remove", "path": f'members[value eq "{first}"]'})
    assert list_members(client, group) == []
    added = [{"value": first, "display": "ines@example.com"}]
    patch(client, f"/Groups/{group}", {"op": "add", "path": "members", "value": added})
    patch(client, f"/Groups/{group}", {"op": "replace", "path": "members", "value": []})
    assert list_members(client, group) == []
    assert client.delete(f"/Groups/{group}").status_code == 204


@pytest.mark.parametrize(
    ("query", "status", "scim_type"),
    [
        ('userName sw "i"', 400, "invalidFilter"),
        ("userName pr", 400, "invalidFilter"),
        ('not (userName eq "x")', 400, "invalidFilter"),
        ('userName eq "x" or userName eq "y"', 400, "invalidFilter"),
        ('userName eq "', 400, "invalidFilter"),
        (f'userName eq "{"x" * 600}"', 400, "invalidFilter"),
        ("(" * 400, 400, "invalidFilter"),
        ('password eq "x"', 400, "invalidFilter"),
    ],
)
def test_filter_that_would_look_at_everyone_is_refused(
    client: httpx2.Client, query: str, status: int, scim_type: str
) -> None:
    assert_refused(client.get("/Users", params={"filter": query}), status, scim_type)
    body = {"schemas": ["urn:ietf:params:scim:api:messages:2.0:SearchRequest"], "filter": query}
    assert_refused(client.post("/Users/.search", json=body), status, scim_type)


def test_hostile_patches_are_refused_and_change_nothing(client: httpx2.Client) -> None:
    number = add_user(client)
    before = client.get(f"/Users/{number}").json()
    one = {"op": "replace", "path": "displayName", "value": "x"}
    for operations in (
        [one] * 1001,
        [{**one, "path": "a" * 301}],
        [{**one, "path": "members[" * 30}],
        [one, {**one, "path": "userName", "value": "dоra@example.com"}],
        [one, {**one, "path": "id", "value": "2819c223-7f76-453a-919d-413861904646"}],
        [one, {"op": "explode", "path": "active"}],
        [one, {**one, "value": "ada‮olga"}],
        [one, {**one, "value": "x" * 121}],
    ):
        body = {"schemas": [PATCH], "Operations": operations}
        answer = client.patch(f"/Users/{number}", json=body)
        assert answer.json()["schemas"] == [ERROR], operations
        assert answer.status_code == 400, (operations, answer.text)
    assert client.get(f"/Users/{number}").json() == before


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[" * 100_000, 400),
        (b"[]", 400),
        (b"null", 400),
        (b'{"userName": "x", "active": "perhaps"}', 400),
        (b'{"userName": {"a": 1}}', 400),
        (b'"' + b"x" * (2 * 1024 * 1024) + b'"', 413),
        (b"\xff\xfe", 400),
    ],
)
def test_body_that_is_no_user_is_refused(client: httpx2.Client, body: bytes, status: int) -> None:
    answer = client.post("/Users", content=body)
    assert (answer.status_code, answer.json()["schemas"]) == (status, [ERROR])


def test_what_is_not_supported_is_said_so(client: httpx2.Client) -> None:
    assert_refused(client.post("/Bulk", json={"Operations": []}), 501)
    assert_refused(client.get("/Me"), 501)
    assert_refused(client.get("/nothing"), 404)
    assert_refused(client.post("/Users", json={"schemas": [USER]}), 400, "invalidValue")
    group = {"schemas": [GROUP], "displayName": "A", "members": [{"value": "nobody"}]}
    assert "no user here" in assert_refused(
        client.post("/Groups", json=group), 400, "invalidValue"
    )


def test_only_the_token_of_the_provider_opens_scim(
    client: httpx2.Client, service: Service
) -> None:
    _, other = service.keyturn.service.tokens.create_token(
        person="olga", scopes=["read", "request", "approve"], days=1, name="x", source="web"
    )
    address = f"{service.address}/scim/v2/Users"
    for given in ("", f"Bearer {other}", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer"):
        answer = httpx2.get(address, headers={"Authorization": given} if given else {})
        assert_refused(answer, 401)
        assert answer.headers["www-authenticate"] == 'Bearer realm="SCIM"'
    assert client.get("/Users").status_code == 200
    token = {"Authorization": f"Bearer {TOKEN}"}
    assert httpx2.get(f"{service.address}/api/v1/runs", headers=token).status_code == 401
    with service.keyturn.database.reading() as tx:
        logged = change_log.get_last_entry_of_kind(tx, "token refused")
    assert logged is not None
    assert TOKEN not in json.dumps(logged.event.encode())
    # Whoever guesses is held to one guess a second.
    codes = {httpx2.get(address).status_code for _ in range(40)}
    assert codes == {401, 429}
    assert client.get("/Users").status_code == 200


def test_scim_is_off_without_a_token(tmp_path: Path) -> None:
    sample_company.create_policy(tmp_path / "policy")
    with Service(tmp_path, slack="") as service:
        assert httpx2.get(f"{service.address}/scim/v2/Users").status_code != 200
        answer = httpx2.post(f"{service.address}/scim/v2/Users", json=ENTRA_USER)
        assert answer.status_code in {403, 404}


@pytest.mark.parametrize(
    ("place", "query", "status", "scim_type"),
    [
        ("/Users", {"filter": 'userName eq "a\\ud800b"'}, 400, "invalidFilter"),
        ("/Users", {"filter": 'userName eq "a\\u0000b"'}, 400, "invalidFilter"),
        ("/Users", {"startIndex": "1" + "0" * 30}, 400, None),
        ("/Groups", {"count": "1" + "0" * 30}, 400, None),
        ("/Users/%00", {}, 404, None),
    ],
)
def test_what_no_database_can_look_for_is_refused(
    client: httpx2.Client, place: str, query: dict[str, str], status: int, scim_type: str | None
) -> None:
    assert_refused(client.get(place, params=query), status, scim_type)


def test_limits_hold_however_the_name_of_an_attribute_is_written(client: httpx2.Client) -> None:
    search = {"schemas": ["urn:ietf:params:scim:api:messages:2.0:SearchRequest"]}
    long = " and ".join(['userName eq "a"'] * 100)
    answer = client.post("/Users/.search", json={**search, "Filter": long})
    assert_refused(answer, 400, "invalidFilter")
    operation = {"op": "replace", "Path": "x" * 301, "value": "x"}
    body = {"schemas": [PATCH], "Operations": [operation]}
    answer = client.patch(f"/Users/{add_user(client)}", json=body)
    assert_refused(answer, 400, "invalidPath")
