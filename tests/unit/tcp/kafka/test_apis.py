"""The table of served APIs: what old and new clients find in it, and whether its rows are consistent."""

from __future__ import annotations

import inspect
from typing import cast

import pytest
from stele.wire import schema
from stele.wire.kafka.api import Api
from stele.wire.kafka.api_versions import ApiVersionsRequest, ApiVersionsResponse

from app.tcp.kafka.apis import API_VERSIONS_KEY, SERVED, Served, unsupported_api_versions
from app.tcp.kafka.context import Context, KafkaListener

ROWS = [pytest.param(row, id=row.api.name) for row in SERVED.values()]

# What a client must find to work at all: (key, a version of it). The first clients that had them
# and those of today, KIP-896 between them.
NEEDED = {
    "Kafka's oldest consumers": [(1, 0), (2, 1), (3, 0), (8, 2), (9, 0), (10, 0), (11, 0), (12, 0), (13, 0), (14, 0)],
    "librdkafka's feature detection": [(0, 0), (0, 3), (1, 4), (2, 2), (18, 0), (22, 0)],
    "kcat 1.7": [(0, 7), (1, 11), (2, 2), (3, 4), (8, 7), (9, 7), (10, 2), (11, 5)],
    "KafkaJS 2.2": [(0, 7), (1, 11), (2, 3), (3, 6), (8, 5), (9, 4), (10, 2), (11, 5), (18, 2), (19, 3), (20, 1)],
    "Java, at the least it speaks": [(0, 3), (1, 4), (2, 1), (3, 0), (8, 2), (9, 1), (10, 0), (11, 0), (22, 0), (32, 1)],
    "Java 4.3": [(0, 13), (1, 18), (2, 11), (3, 13), (8, 10), (9, 10), (10, 6), (11, 9), (12, 4), (13, 5), (14, 5),
                 (15, 6), (16, 5), (18, 4), (19, 7), (20, 6), (21, 2), (22, 5), (23, 4), (32, 4), (33, 2), (35, 5),
                 (37, 3), (42, 2), (44, 1), (47, 0), (60, 2), (61, 0), (75, 0)],
    # The first versions of old clients, and the last ones of Java 4.3.
    "transactional producers": [(10, 1), (22, 0), (24, 0), (25, 0), (26, 0), (28, 0),
                                (10, 6), (22, 5), (24, 3), (25, 4), (26, 5), (28, 5)],
    "kafka-transactions": [(27, 1), (27, 2), (61, 0), (65, 0), (66, 0), (66, 2)],
}  # fmt: skip
# Clients send telemetry when they see it; the others are requests between brokers.
NEVER_SAID = [4, 5, 6, 7, 52, 56, 58, 62, 67, 71, 72, 82, 83, 84, 85, 86, 87]
# Administrators' tools ask for these in a version of their own choice, or take their absence for a broker
# that is not ready yet; version guessers look for the APIs of SASL and transactions (17, 24 to 26, 28, 36).
# What cannot be done is refused in the answer (ADR-0021).
ALWAYS_SAID = [17, 24, 25, 26, 28, 29, 30, 31, 34, 36, 38, 39, 40, 41, 43, 45, 46, 48, 49, 50, 51, 55, 57, 60, 61, 64, 65, 66, 68, 69, 74, 75,
               76, 77, 78, 79, 80, 81, 88, 89, 90, 91, 92]  # fmt: skip


@pytest.mark.parametrize("needed", NEEDED.values(), ids=NEEDED)
def test_clients_find_the_versions_they_need(needed: list[tuple[int, int]]) -> None:
    missing = [(key, version) for key, version in needed if not SERVED[key].api.serves(version)]
    assert missing == []


@pytest.mark.parametrize("key", NEVER_SAID)
def test_apis_that_are_not_served_are_not_advertised(key: int) -> None:
    assert key not in SERVED


def test_apis_that_tools_use_without_checking_are_advertised() -> None:
    assert set(ALWAYS_SAID) <= set(SERVED)


@pytest.mark.parametrize("row", ROWS)
def test_a_row_has_a_key_of_its_own_and_versions_in_order(row: Served) -> None:
    first, last = row.api.versions
    assert SERVED[row.api.key] is row
    assert 0 <= first <= last
    assert row.api.name == row.api.request.__name__.removesuffix("Request")
    assert row.api.name == row.api.response.__name__.removesuffix("Response")
    assert row.api.flexible_since is None or 0 <= row.api.flexible_since <= last


@pytest.mark.parametrize("row", ROWS)
def test_a_handler_takes_a_context_and_the_request_of_its_row(row: Served) -> None:
    parameters = inspect.get_annotations(row.handle, eval_str=True)
    assert list(parameters.values())[:2] == [Context, row.api.request]


@pytest.mark.parametrize("row", ROWS)
def test_every_version_of_a_row_compiles(row: Served) -> None:
    first, last = row.api.versions
    for version in range(first, last + 1):
        flexible = row.api.is_flexible(version)
        schema.reader(cast("type[object]", row.api.request), version, flexible)
        schema.gathering_writer(cast("type[object]", row.api.response), version, flexible)


def test_only_a_produce_carries_records() -> None:
    assert [row.api.name for row in SERVED.values() if row.carries_records] == ["Produce"]


def test_a_change_continues_after_its_client_has_disconnected() -> None:
    changing = {row.api.name for row in SERVED.values() if row.changes}
    assert changing == {
        "Produce", "OffsetCommit", "OffsetDelete", "CreateTopics", "DeleteTopics", "DeleteRecords",
        "CreatePartitions", "AlterConfigs", "AlterClientQuotas", "CreateAcls", "DeleteAcls",
        "AlterUserScramCredentials", "IncrementalAlterConfigs", "DeleteGroups", "LeaveGroup",
        "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit", "WriteTxnMarkers",
        "ShareAcknowledge", "AlterShareGroupOffsets", "DeleteShareGroupOffsets",
    }  # fmt: skip


def api_versions_of(version: int, **asked: str) -> ApiVersionsResponse:
    # The handler looks at nothing but the version.
    context = Context(listener=cast("KafkaListener", None), version=version, client_id="", client_host="")
    return cast(
        "ApiVersionsResponse",
        SERVED[API_VERSIONS_KEY].handle(context, ApiVersionsRequest(**asked)),
    )


def test_api_versions_is_the_table() -> None:
    said = [(one.api_key, one.min_version, one.max_version) for one in api_versions_of(0).api_keys]
    assert said == sorted((key, *row.api.versions) for key, row in SERVED.items())


@pytest.mark.parametrize("version", [3, 4])
def test_clients_find_the_transactions_of_kip_890_and_the_groups_of_kips_848_and_932(version: int) -> None:
    answer = api_versions_of(version, client_software_name="c", client_software_version="1")
    # Java and franz-go use what is finalized only with an epoch of 0 or more.
    assert answer.finalized_features_epoch == 0
    assert [
        (one.name, one.min_version_level, one.max_version_level) for one in answer.finalized_features
    ] == [("group.version", 1, 1), ("share.version", 2, 2), ("transaction.version", 2, 2)]
    # Before v4 clients fail at a feature that is supported from 0 on (KAFKA-17011).
    supported = [(one.name, one.min_version, one.max_version) for one in answer.supported_features]
    levels = [("group.version", 0, 1), ("share.version", 0, 2), ("transaction.version", 0, 2)]
    assert supported == (levels if version == 4 else [])


def test_the_response_to_an_unknown_version_lists_only_api_versions() -> None:
    answer = unsupported_api_versions()
    (only,) = answer.api_keys
    assert (answer.error_code, only.api_key) == (35, API_VERSIONS_KEY)
    assert (only.min_version, only.max_version) == SERVED[API_VERSIONS_KEY].api.versions


def test_an_api_without_flexible_versions_has_none() -> None:
    api = Api(
        key=0,
        name="Old",
        versions=(1, 2),
        flexible_since=None,
        request=ApiVersionsRequest,
        response=ApiVersionsResponse,
    )
    assert [api.serves(version) for version in range(-1, 4)] == [False, False, True, True, False]
    assert not api.is_flexible(2)
