"""Operations that read compacted topics by key, and as tables."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ..errors import ConnectionLostError, ProtocolError, SteleClientError
from ..records import Record
from ..wire import messages as m
from ..wire.error_codes import ErrorCode
from .base import HttpAnswer, HttpRequest, Operation, error_from_problem, expect, segment, topic_path
from .fetch import DECODED_BYTES_MAX, decode_up_to, records_of
from .json_records import AS_BYTES, NDJSON, record_from_json

# The broker may have to read the whole partition before its first answer.
TABLE_WAIT_S = 300.0


class LookUpKey(m.LookUpKeyRequest, Operation[Record[bytes] | None]):
    """Look up the newest record of a key; a tombstone is a record without a value.

    None if no record has the key. Over HTTP a deleted key is None as well.
    """

    is_repeatable = True

    def from_frame(self, response: m.Response) -> Record[bytes] | None:
        answer = expect(response, m.LookUpKeyResponse)
        if answer.partition < 0:
            return None
        records = records_of(self.topic, answer.partition, 0, answer.batches)
        if len(records) != 1:
            raise ProtocolError(f"the response to a look-up has {len(records)} records instead of one")
        return records[0]

    def to_http(self) -> HttpRequest:
        # Base64 takes any key through proxies that normalise paths.
        key = segment(urlsafe_b64encode(self.key).decode())
        params = {"encoding": "base64", **AS_BYTES}
        if self.partition != m.ALL_PARTITIONS:
            params["partition"] = str(self.partition)
        return HttpRequest(method="GET", path=topic_path(self.topic, "keys", key), params=params)

    def from_http(self, answer: HttpAnswer) -> Record[bytes] | None:
        return record_from_json(self.topic, answer.json())

    def from_problem(self, error: SteleClientError) -> Record[bytes] | None:
        if error.code is ErrorCode.RESOURCE_NOT_FOUND:
            return None
        raise error


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePage:
    """Records of the table of one partition.

    They are in offset order over the binary protocol; over HTTP, changes follow the table. The next page begins at ``next_offset``, with the same ``end_offset``. After the last
    page, the records applied in order are the table at ``next_offset``.
    """

    records: list[Record[bytes]]
    next_offset: int
    end_offset: int
    is_last: bool


class TableFetch(m.TableFetchRequest, Operation[TablePage]):
    """A page of the table of a partition; over HTTP the whole table is one page."""

    is_repeatable = True

    @property
    def wait_s(self) -> float:
        return TABLE_WAIT_S

    def from_frame(self, response: m.Response) -> TablePage:
        answer = expect(response, m.TableFetchResponse)
        decoded = decode_up_to(
            self.topic, self.partition, self.offset, answer.batches, bytes_max=DECODED_BYTES_MAX
        )
        return TablePage(
            records=decoded.records,
            next_offset=answer.next_offset if decoded.is_whole else decoded.next_offset,
            end_offset=answer.end_offset,
            is_last=answer.is_last and decoded.is_whole,
        )

    def to_http(self) -> HttpRequest:
        return HttpRequest(
            method="GET",
            path=topic_path(self.topic, "table"),
            params={"partition": str(self.partition), **AS_BYTES},
            headers={"Accept": NDJSON},
        )

    def from_http(self, answer: HttpAnswer) -> TablePage:
        """Raises ConnectionLostError if the broker stopped before the end of the table."""
        lines = cast("list[dict[str, Any]]", answer.json_lines())
        end: Mapping[str, Any] | None = None
        records: list[Record[bytes]] = []
        for line in lines:
            if "offset" in line:
                records.append(record_from_json(self.topic, line))
            elif "error" in line:
                problem: Mapping[str, Any] = line["error"]
                raise error_from_problem(problem, status=int(problem["status"]))
            elif "end" in line:
                end = line["end"]
        if end is None or str(self.partition) not in end["positions"]:
            raise ConnectionLostError(
                f"the broker stopped before the end of the table of {self.topic}-{self.partition}"
            )
        position = int(end["positions"][str(self.partition)])
        return TablePage(records=records, next_offset=position, end_offset=position, is_last=True)


class RawTableFetch(m.TableFetchRequest, Operation[m.TableFetchResponse]):
    """A page of the table of a partition without decoding; over the binary protocol only."""

    is_repeatable = True

    @property
    def wait_s(self) -> float:
        return TABLE_WAIT_S

    def from_frame(self, response: m.Response) -> m.TableFetchResponse:
        return expect(response, m.TableFetchResponse)
