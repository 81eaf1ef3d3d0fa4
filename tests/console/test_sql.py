"""The SQL screen: rows, chart, progress and errors."""

from __future__ import annotations

from urllib.parse import quote

from playwright.sync_api import expect

from .accessibility import check_accessibility
from .conftest import FLIGHTS, Open

BY_CARRIER = "select value->>'$.carrier' as carrier, count(*) as flights from \"flights\" group by all order by 2 desc, 1"


def test_a_statement_shows_rows_and_a_chart(open_page: Open) -> None:
    page = open_page("/console/sql")
    page.get_by_label("Add a topic").fill("flights")
    page.get_by_label("Add a topic").press("Tab")
    expect(page.get_by_label("Statement", exact=True)).to_have_value('select * from "flights" limit 100')
    page.get_by_label("Statement", exact=True).fill(BY_CARRIER)
    page.get_by_label("Statement", exact=True).press("Control+Enter")
    expect(page.locator("#status")).to_contain_text("rows in")
    cells = page.locator("#grid tbody tr").first.locator("td")
    expect(cells).to_have_count(2)
    page.get_by_role("button", name="Chart").click()
    expect(page.locator("#chart rect").first).to_be_visible()
    check_accessibility(page)
    # The link has the statement, but runs nothing.
    page.reload()
    expect(page.get_by_label("Statement", exact=True)).to_have_value(BY_CARRIER)
    expect(page.locator("#answer")).to_be_hidden()


def test_what_is_wrong_and_what_is_cut_are_said(open_page: Open) -> None:
    page = open_page(f"/console/sql?sql={quote('select * from fligths')}", may_fail=True)
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#notice")).to_contain_text('did you mean "flights"')
    page.get_by_label("Statement", exact=True).fill("select _offset, value from flights")
    page.get_by_label("Rows at most").fill("5")
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#status")).to_contain_text("5 rows, and there are more")
    expect(page.locator("#grid tbody tr")).to_have_count(5)
    page.get_by_label("Rows at most").fill("100000")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export CSV").click()
    assert len(download.value.path().read_text().splitlines()) == FLIGHTS + 1


def test_a_statement_is_stopped(open_page: Open) -> None:
    page = open_page("/console/sql")
    page.get_by_label("Statement", exact=True).fill(
        "select count(*) from range(1000000000000000000), flights limit 1"
    )
    page.get_by_role("button", name="Run").click()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#status")).to_have_text("Stopped.")
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
