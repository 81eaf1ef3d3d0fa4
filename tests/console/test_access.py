"""The screen of users, API keys, access rules and quotas: what is listed, added and removed, and who is shown it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, Route, expect
from stele.broker_process import BrokerProcess, run_broker

from app.security.acl import OPERATIONS_OF, ResourceType
from tests.integration.test_kafka_logins import PASSWORD, USER, add_user

from .accessibility import check_accessibility
from .conftest import Open

pytestmark = pytest.mark.long

PATH = "/console/access"
SCREENSHOT_RULES = [
    {"principal": "User:ingest", "operation": "WRITE", "resource_type": "TOPIC", "resource_name": "shop.", "pattern_type": "PREFIXED"},
    {"principal": "User:billing", "operation": "READ", "resource_type": "TOPIC", "resource_name": "shop.orders"},
    {"principal": "User:billing", "operation": "READ", "resource_type": "GROUP", "resource_name": "billing"},
    {"principal": "User:*", "operation": "DELETE", "resource_type": "TOPIC", "resource_name": "*", "permission": "DENY"},
]  # fmt: skip


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose HTTP listener requires logins, with access rules; alice is above them."""
    data_dir = tmp_path_factory.mktemp("access") / "data"
    data_dir.mkdir()
    # Playwright's event loop runs in this thread.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(add_user, data_dir).result()
    environment = {
        "STELE_HTTP_AUTHENTICATION": "required",
        "STELE_SUPER_USERS": f"User:{USER}",
        "STELE_LOGIN_FAILURES_FREE": "1000",
    }
    with run_broker(data_dir=data_dir, environment=environment) as broker:
        # The user came with a key.
        with httpx.Client(base_url=broker.http_url, auth=(USER, PASSWORD), timeout=60) as client:
            delete_keys(client)
        yield broker


def delete_keys(client: httpx.Client) -> None:
    for key in client.get("/v1/keys").json()["keys"]:
        client.delete(f"/v1/keys/{key['id']}").raise_for_status()


@pytest.fixture
def admin(secure: BrokerProcess) -> Iterator[httpx.Client]:
    """Tests ask for it before ``open_page``: a page must not see its user deleted."""
    with httpx.Client(base_url=secure.http_url, auth=(USER, PASSWORD), timeout=60) as client:
        yield client
        for user in client.get("/v1/users").json()["users"]:
            if user["name"] != USER:
                client.delete(f"/v1/users/{user['name']}").raise_for_status()
        delete_keys(client)
        client.delete("/v1/acls?permission=ANY").raise_for_status()
        for quota in client.get("/v1/quotas").json()["quotas"]:
            values = dict.fromkeys(quota["values"])
            client.patch("/v1/quotas", json={"entity": quota["entity"], "values": values}).raise_for_status()


def add_rules(admin: httpx.Client, *rules: dict[str, str]) -> None:
    admin.post("/v1/acls", json={"acls": rules}).raise_for_status()


def log_in(
    open_page: Open, secure: BrokerProcess, user: str = USER, password: str = PASSWORD, **options: Any
) -> Page:
    page = open_page(f"/console/login?next={PATH}", base=secure.http_url, **options)
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Access", exact=True)).to_be_visible()
    return page


def rows(page: Page, section: str) -> Any:
    return page.locator(f"#{section} tbody tr")


def test_users_are_created_changed_and_deleted(
    secure: BrokerProcess, admin: httpx.Client, open_page: Open
) -> None:
    page = log_in(open_page, secure)
    expect(rows(page, "users")).to_have_count(1)
    page.get_by_role("button", name="New user…").click()
    dialog = page.get_by_role("dialog", name="New user")
    dialog.get_by_label("Name").fill("carol/x")
    dialog.get_by_label("Password").fill("first-password-7")
    dialog.get_by_role("button", name="Create").click()
    row = rows(page, "users").filter(has_text="carol/x")
    expect(row).to_contain_text("SCRAM-SHA-512")
    carol = httpx.BasicAuth("carol/x", "first-password-7")
    assert httpx.get(f"{secure.http_url}/v1/topics", auth=carol).status_code == 200
    # The password is in no attribute, and no request has it in its URL.
    assert "first-password-7" not in page.content()

    row.get_by_role("button", name="Change the password of carol/x").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("New password").fill("second-password-7")
    dialog.get_by_role("button", name="Change", exact=True).click()
    expect(page.get_by_text("Password changed")).to_be_visible()
    assert httpx.get(f"{secure.http_url}/v1/topics", auth=carol).status_code == 401

    row.get_by_role("button", name="Delete user carol/x").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Delete", exact=True)).to_be_disabled()
    dialog.get_by_label("Type carol/x to confirm").fill("carol/x")
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(row).to_have_count(0)
    assert [user["name"] for user in admin.get("/v1/users").json()["users"]] == [USER]


def topics_with(secure: BrokerProcess, key: str) -> int:
    return httpx.get(f"{secure.http_url}/v1/topics", headers={"authorization": f"Bearer {key}"}).status_code


def test_a_key_is_shown_once_and_works_until_it_is_deleted(
    secure: BrokerProcess, admin: httpx.Client, open_page: Open
) -> None:
    page = log_in(open_page, secure)
    expect(page.get_by_text("No keys.")).to_be_visible()
    page.get_by_role("button", name="New key…").click()
    dialog = page.get_by_role("dialog", name="New API key")
    expect(dialog.get_by_label("User")).to_have_value(USER)
    dialog.get_by_label("User").fill("ingest")
    dialog.get_by_label("Description").fill("the <b>scanner</b> in hall 7")
    dialog.get_by_label("Days until it expires").fill("30")
    dialog.get_by_role("button", name="Create").click()
    made = page.get_by_role("dialog", name="API key created")
    key = made.get_by_label("API key", exact=True).inner_text()
    assert topics_with(secure, key) == 200
    made.get_by_role("button", name="Done").click()
    row = rows(page, "keys")
    expect(row).to_contain_text("User:ingest")
    expect(row).to_contain_text("the <b>scanner</b> in hall 7")
    assert key not in page.content()
    assert key not in page.url
    page.reload()
    expect(row).to_have_count(1)
    assert key not in page.content()
    (listed,) = admin.get("/v1/keys").json()["keys"]
    assert listed["principal"] == "User:ingest"
    assert listed["expires_at"] - listed["created_at"] == 30 * 86_400_000

    page.get_by_label("Search users, keys, rules and quotas").fill("scanner")
    expect(row).to_have_count(1)
    row.get_by_role("button", name=f"Delete key {listed['id']} of User:ingest").click()
    dialog = page.get_by_role("dialog", name="Delete the API key")
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text("Key deleted")).to_be_visible()
    expect(row).to_have_count(0)
    assert topics_with(secure, key) == 401
    assert admin.get("/v1/keys").json()["keys"] == []


def test_a_user_without_rights_has_keys_of_its_own_alone(
    secure: BrokerProcess, admin: httpx.Client, open_page: Open
) -> None:
    admin.post("/v1/users", json={"name": "carol", "password": PASSWORD}).raise_for_status()
    admin.post("/v1/keys", json={"user": "dora", "description": "of another"}).raise_for_status()
    page = log_in(open_page, secure, "carol", may_fail=True)
    page.get_by_role("button", name="New key…").click()
    dialog = page.get_by_role("dialog", name="New API key")
    expect(dialog.get_by_label("User")).to_have_value("carol")
    dialog.get_by_label("User").fill("dora")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_contain_text("not allowed to create tokens")
    dialog.get_by_label("User").fill("carol")
    dialog.get_by_role("button", name="Create").click()
    made = page.get_by_role("dialog", name="API key created")
    key = made.get_by_label("API key", exact=True).inner_text()
    made.get_by_role("button", name="Done").click()
    row = rows(page, "keys")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("User:carol")
    expect(row).to_contain_text("never")
    assert topics_with(secure, key) == 200
    row.get_by_role("button", name="Delete key").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(row).to_have_count(0)
    assert [left["principal"] for left in admin.get("/v1/keys").json()["keys"]] == ["User:dora"]
    assert topics_with(secure, key) == 401


def test_an_expired_key_is_marked(secure: BrokerProcess, admin: httpx.Client, open_page: Open) -> None:
    admin.post("/v1/keys", json={"user": "dora", "expires_in_ms": 1}).raise_for_status()
    page = log_in(open_page, secure)
    expect(rows(page, "keys")).to_contain_text("expired")


def test_what_the_broker_refuses_is_shown_in_the_dialog(
    secure: BrokerProcess, admin: httpx.Client, open_page: Open
) -> None:
    page = log_in(open_page, secure, may_fail=True)
    page.get_by_role("button", name="New user…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill(USER)
    dialog.get_by_label("Password").fill("another-password-7")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_contain_text(f"'{USER}'")
    dialog.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="New rule…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Principal").fill("alice")
    dialog.get_by_label("Name or prefix").fill("orders")
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("User:")
    assert admin.get("/v1/acls").json()["acls"] == []


def test_rules_are_added_found_and_removed(
    secure: BrokerProcess, admin: httpx.Client, open_page: Open
) -> None:
    page = log_in(open_page, secure)
    expect(page.get_by_text("No rules. Only super users may do anything.")).to_be_visible()
    page.get_by_role("button", name="New rule…").click()
    dialog = page.get_by_role("dialog", name="New access rule")
    dialog.get_by_label("Principal").fill("User:billing")
    dialog.get_by_label("Permission").select_option("DENY")
    dialog.get_by_label("Operation").select_option("DELETE")
    dialog.get_by_label("Name or prefix").fill("shop.")
    dialog.get_by_label("The name is").select_option("PREFIXED")
    dialog.get_by_role("button", name="Add", exact=True).click()
    row = rows(page, "rules")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("may not")
    expect(row).to_contain_text("each topic whose name begins with shop.")

    page.get_by_role("button", name="New rule…").click()
    dialog.get_by_label("Principal").fill("User:ops")
    dialog.get_by_label("Resource").select_option("CLUSTER")
    expect(dialog.get_by_label("Name or prefix")).to_be_hidden()
    dialog.get_by_label("Operation").select_option("ALTER_CONFIGS")
    dialog.get_by_label("From address").fill("10.0.0.7")
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(row).to_have_count(2)
    made = {
        (rule["principal"], rule["permission"], rule["operation"], rule["resource_name"], rule["host"])
        for rule in admin.get("/v1/acls").json()["acls"]
    }
    assert made == {
        ("User:billing", "DENY", "DELETE", "shop.", "*"),
        ("User:ops", "ALLOW", "ALTER_CONFIGS", "kafka-cluster", "10.0.0.7"),
    }

    page.get_by_label("Search users, keys, rules and quotas").fill("SHOP")
    expect(row).to_have_count(1)
    remove = row.get_by_role("button", name="Remove the rule: User:billing may not DELETE")
    remove.click()
    dialog = page.get_by_role("dialog", name="Remove the rule")
    expect(dialog).to_contain_text("User:billing may not DELETE on each topic whose name begins with shop.")
    dialog.get_by_role("button", name="Cancel").click()
    expect(row).to_have_count(1)
    remove.click()
    dialog.get_by_role("button", name="Remove", exact=True).click()
    expect(page.get_by_text("Rule removed")).to_be_visible()
    (left,) = admin.get("/v1/acls").json()["acls"]
    assert left["principal"] == "User:ops"


def test_a_button_waits_for_the_script_that_serves_it(open_page: Open, secure: BrokerProcess) -> None:
    page = open_page(f"/console/login?next={PATH}", base=secure.http_url)
    button = page.get_by_role("button", name="New user…")
    held: list[Route] = []

    def hold(script: Route) -> None:
        held.append(script)
        expect(button).to_be_disabled()
        script.continue_()

    page.route("**/access.js*", hold)
    page.get_by_label("User").fill(USER)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    button.click()
    expect(page.get_by_role("dialog", name="New user")).to_be_visible()
    assert held, "the script is not loaded by this name"


def test_a_rule_has_the_operations_of_its_resource(open_page: Open, secure: BrokerProcess) -> None:
    page = log_in(open_page, secure)
    page.get_by_role("button", name="New rule…").click()
    dialog = page.get_by_role("dialog")
    kinds = dialog.get_by_label("Resource").locator("option")
    expect(kinds).to_have_count(len(OPERATIONS_OF))
    assert {ResourceType[kind] for kind in kinds.all_inner_texts()} == set(OPERATIONS_OF)
    for kind, operations in OPERATIONS_OF.items():
        dialog.get_by_label("Resource").select_option(kind.name)
        offered = dialog.get_by_label("Operation").locator("option")
        expect(offered).to_have_count(len(operations) + 1)
        assert set(offered.all_inner_texts()) == {operation.name for operation in operations} | {"ALL"}


def test_quotas_are_set_and_removed(secure: BrokerProcess, admin: httpx.Client, open_page: Open) -> None:
    page = log_in(open_page, secure)
    expect(page.get_by_text("No quotas: no client is limited.")).to_be_visible()
    page.get_by_role("button", name="Set a quota…").click()
    dialog = page.get_by_role("dialog", name="Set a quota")
    dialog.locator("[name=kind]").select_option("both")
    dialog.get_by_label("Name of the user").fill("billing")
    dialog.locator("[name=quota]").select_option("consumer_byte_rate")
    dialog.get_by_label("Limit").fill("1048576")
    dialog.get_by_role("button", name="Set", exact=True).click()
    row = rows(page, "quotas")
    expect(row).to_contain_text("user billing, each client id without a quota of its own")
    expect(row).to_contain_text("1 MiB/s")
    page.get_by_role("button", name="Set a quota…").click()
    dialog.locator("[name=kind]").select_option("ip")
    dialog.get_by_label("Name of the address").fill("10.0.0.7")
    expect(dialog.locator("[name=quota]").locator("option")).to_have_text(["connection_creation_rate"])
    dialog.get_by_label("Limit").fill("20")
    dialog.get_by_role("button", name="Set", exact=True).click()
    expect(row).to_have_count(2)
    assert {str(quota) for quota in admin.get("/v1/quotas").json()["quotas"]} == {
        str({"entity": {"client-id": None, "user": "billing"}, "values": {"consumer_byte_rate": 1048576}}),
        str({"entity": {"ip": "10.0.0.7"}, "values": {"connection_creation_rate": 20}}),
    }

    row.get_by_role("button", name="Remove connection_creation_rate of address 10.0.0.7").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove", exact=True).click()
    expect(row).to_have_count(1)
    assert len(admin.get("/v1/quotas").json()["quotas"]) == 1


@pytest.mark.parametrize(
    ("operations", "sections", "buttons"),
    [
        ((), ["API keys"], ["New key…"]),
        (("DESCRIBE",), ["Users", "API keys", "Access rules"], ["New key…"]),
        (("ALTER",), ["Users", "API keys", "Access rules"], ["New user…", "New key…", "New rule…"]),
        (("DESCRIBE_CONFIGS",), ["API keys", "Quotas"], ["New key…"]),
        (
            ("DESCRIBE", "ALTER_CONFIGS"),
            ["Users", "API keys", "Access rules", "Quotas"],
            ["New key…", "Set a quota…"],
        ),
    ],
)
def test_a_client_is_shown_what_it_may_use(
    secure: BrokerProcess,
    admin: httpx.Client,
    open_page: Open,
    operations: tuple[str, ...],
    sections: list[str],
    buttons: list[str],
) -> None:
    admin.post("/v1/users", json={"name": "carol", "password": PASSWORD}).raise_for_status()
    add_rules(
        admin,
        {"principal": "User:dora", "operation": "READ", "resource_type": "TOPIC", "resource_name": "t"},
        *(
            {"principal": "User:carol", "operation": operation, "resource_type": "CLUSTER"}
            for operation in operations
        ),
    )
    admin.post("/v1/keys", json={"user": "dora"}).raise_for_status()
    page = log_in(open_page, secure, "carol")
    expect(page.locator("main h2")).to_have_text(sections)
    expect(page.locator("main .new")).to_have_text(buttons)
    expect(page.get_by_role("link", name="Access")).to_have_count(1)
    if "Users" in sections:
        expect(rows(page, "users")).to_have_count(2)
        removals = rows(page, "rules").get_by_role("button")
        expect(removals).to_have_count(1 + len(operations) if "New rule…" in buttons else 0)
    # Keys of others are listed for those who may see users, and deleted by those who may change them.
    expect(rows(page, "keys")).to_have_count(1 if "Users" in sections else 0)
    expect(rows(page, "keys").get_by_role("button")).to_have_count(1 if "New user…" in buttons else 0)
    page.get_by_role("link", name="Mirrors").click()
    expect(page.get_by_text("You may not see mirrors")).to_have_count(0 if "Users" in sections else 1)
    expect(page.get_by_text("No mirrors yet.")).to_have_count(1 if "Users" in sections else 0)
    expect(page.get_by_role("button", name="New mirror…")).to_have_count(1 if "New user…" in buttons else 0)


def test_without_rules_the_page_says_so(open_page: Open) -> None:
    page = open_page(PATH, may_fail=True)
    expect(page.locator("#rules .empty")).to_contain_text("STELE_AUTHORIZATION")
    expect(page.get_by_role("button", name="New rule…")).to_be_disabled()
    expect(page.get_by_role("button", name="New user…")).to_be_enabled()


def test_the_screen_can_be_used_by_everybody(
    secure: BrokerProcess, admin: httpx.Client, open_page: Open, screenshots: Path | None
) -> None:
    for name in ("billing", "ingest"):
        admin.post("/v1/users", json={"name": name, "password": PASSWORD}).raise_for_status()
    add_rules(admin, *SCREENSHOT_RULES)
    admin.post("/v1/keys", json={"user": "ingest", "description": "nightly import"}).raise_for_status()
    entity = {"user": "ingest"}
    admin.patch(
        "/v1/quotas", json={"entity": entity, "values": {"producer_byte_rate": 1048576}}
    ).raise_for_status()
    page = log_in(open_page, secure)
    expect(rows(page, "rules")).to_have_count(4)
    if screenshots is not None:
        page.screenshot(path=screenshots / "access.png")
    for dialog in (None, "New user…", "New key…", "New rule…", "Set a quota…"):
        if dialog is not None:
            page.get_by_role("button", name=dialog).click()
        check_accessibility(page)
        if dialog is not None:
            page.keyboard.press("Escape")


def test_the_screen_fits_on_a_phone(secure: BrokerProcess, admin: httpx.Client, open_page: Open) -> None:
    add_rules(admin, *SCREENSHOT_RULES)
    page = log_in(open_page, secure, viewport={"width": 390, "height": 800}, has_touch=True)
    expect(rows(page, "rules")).to_have_count(4)
    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
