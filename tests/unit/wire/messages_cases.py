"""One instance or more of every message, for tests that treat all of them alike."""

from __future__ import annotations

from stele.wire import messages as m
from stele.wire.error_codes import ErrorCode

REQUESTS: list[m.Request] = [
    m.ConsumeRequest(topic="t", offset=-1, batch_size=-5),
    m.ConsumeRequest(topic="größe", offset=2**62, batch_size=2**31 - 1),
    m.ProduceRequest(topic="", data=b""),
    m.ProduceRequest(topic="t" * 300, data=bytes(range(256))),
    m.FlushRequest(),
    m.MetadataRequest(topics=None),
    m.MetadataRequest(topics=(), auto_create=True),
    m.MetadataRequest(topics=("a", "b"), auto_create=True),
    m.ProduceBatchRequest(topic="t", partition=-1, acks=-1, timeout_ms=5, batches=b"batch"),
    m.FetchRequest(partitions=[]),
    m.FetchRequest(
        partitions=[
            m.FetchPartition(topic="a", partition=0, offset=7, max_bytes=1),
            m.FetchPartition(topic="b", partition=3, offset=0),
        ],
        max_wait_ms=100,
        min_bytes=2,
        max_bytes=3,
    ),
    m.ListOffsetsRequest(topic="t", partition=1, timestamp_ms=m.EARLIEST_TIMESTAMP),
    m.CreateTopicRequest(topic="t"),
    m.CreateTopicRequest(topic="t", partitions=6, configs=(("retention.ms", "1"), ("x", None))),
    m.DeleteTopicRequest(topic="t"),
    m.DescribeTopicRequest(topic="t"),
    m.AlterTopicRequest(topic="t", partitions=9, configs=(("retention.ms", None),)),
    m.InitProducerIdRequest(),
    m.FlushTopicRequest(topic="t"),
    m.NamedProducerRequest(name="jobs/größe", version=2**40),
    m.ProducerStateRequest(topic="t", partition=2, producer_id=2**40),
    m.JoinGroupRequest(group="g", topics=["t", "u"], session_timeout_ms=10_000, client_id="c"),
    m.JoinGroupRequest(group="größe", topics=[], session_timeout_ms=-1, member_id="m"),
    m.HeartbeatRequest(group="g", member_id="m", generation=3),
    m.LeaveGroupRequest(group="g", member_id="m"),
    m.ClaimRequest(group="g", member_id="m", generation=3, topic="t", partition=1),
    m.ReleaseRequest(group="g", member_id="m", generation=3, topic="t", partition=1),
    m.CommitRequest(group="g", member_id="m", generation=3, topic="t", partition=1, offset=42, metadata="µ"),
    m.CommittedRequest(group="g", topic="t", partition=1),
    m.OwnerFetchRequest(group="g", member_id="m", generation=3, topic="t", partition=1, offset=2**40),
    m.PollRequest(group="g", topics=["t"], poll_id="p", start="latest", max_partitions=1, lease_ms=100),
    m.PollRequest(group="g", topics=[]),
    m.AckRequest(group="g", lease="l"),
    m.NackRequest(group="g", lease=""),
    m.ExtendRequest(group="g", lease="l", lease_ms=1000),
    m.ProduceBatchRequest(
        topic="größe", partition=2**31 - 1, acks=1, timeout_ms=-1, batches=bytearray(b"\0\xff")
    ),
    m.ListOffsetsRequest(topic="", partition=-(2**31), timestamp_ms=-(2**63)),
    m.CreateTopicRequest(topic="t", configs=[("größe", ""), ("", "größe")]),
    m.NamedProducerRequest(name="", version=-1),
    m.JoinGroupRequest(
        group="g", topics=("größe",), session_timeout_ms=2**31 - 1, member_id="m", client_id="é"
    ),
    m.CommitRequest(group="g", member_id="", generation=-1, topic="", partition=-1, offset=-(2**63)),
    m.OwnerFetchRequest(
        group="g", member_id="m", generation=3, topic="t", partition=1, offset=7, max_bytes=-1, max_wait_ms=5
    ),
    m.PollRequest(
        group="g",
        topics=("a", "größe"),
        poll_id="",
        max_records=1,
        max_bytes=2,
        max_partitions=3,
        max_wait_ms=4,
        lease_ms=5,
    ),
    m.LookUpKeyRequest(topic="t", key=b"k"),
    m.LookUpKeyRequest(topic="größe", partition=2**31 - 1, key=b""),
    m.AuthenticateRequest(mechanism="SCRAM-SHA-512", data=b"n,,n=alice,r=nonce"),
    m.AuthenticateRequest(mechanism="", data=b""),
    m.TableFetchRequest(topic="t", partition=1),
    m.TableFetchRequest(
        topic="größe", partition=-1, offset=2**40, end_offset=2**41, max_bytes=-1, with_tombstones=True
    ),
    m.IsolatedFetchRequest(partitions=[]),
    m.IsolatedFetchRequest(
        partitions=[m.FetchPartition(topic="a", partition=0, offset=7, max_bytes=1)],
        max_wait_ms=100,
        min_bytes=2,
        max_bytes=3,
        isolation=1,
    ),
    m.TopicFetchRequest(partitions=[], topic_ids=[]),
    m.TopicFetchRequest(
        partitions=[m.FetchPartition(topic="a", partition=0, offset=7, max_bytes=1)],
        max_wait_ms=100,
        min_bytes=2,
        max_bytes=3,
        isolation=1,
        topic_ids=[m.TopicIdentity(topic="a", topic_id=bytes(range(16)))],
    ),
    m.IsolatedListOffsetsRequest(topic="t", partition=1, timestamp_ms=m.LATEST_TIMESTAMP, isolation=-128),
    m.InitTransactionsRequest(transactional_id="cdc", timeout_ms=60_000),
    m.InitUnlessOpenRequest(transactional_id="spark/q/0", timeout_ms=60_000),
    m.TransactionalProduceRequest(
        topic="t", partition=3, acks=m.ACKS_ALL, batches=b"batch", transactional_id="cdc"
    ),
    m.ConditionalProduceRequest(topic="t", partition=3, acks=1, batches=b"batch", expected_end=2**40),
    m.MirrorAppendRequest(
        topic="t",
        topic_id=bytes(range(16)),
        partition=3,
        expected_end=2**40,
        log_start_offset=7,
        batches=b"batch",
    ),
    m.MirrorAppendRequest(
        topic="t", topic_id=bytes(16), partition=0, expected_end=0, log_start_offset=-1, batches=b""
    ),
    m.EndTransactionRequest(transactional_id="cdc", producer_id=2**40, producer_epoch=7, is_commit=True),
    m.EndTransactionRequest(transactional_id="", producer_id=-1, producer_epoch=-1, is_commit=False),
    m.HttpListenerRequest(),
    m.CommitTransactionsRequest(transactions=[]),
    m.CommitTransactionsRequest(
        transactions=[
            m.OpenTransaction(transactional_id="spark/q/0", producer_id=2**40, producer_epoch=7),
            m.OpenTransaction(transactional_id="", producer_id=-1, producer_epoch=-1),
        ],
        abandoned_prefix="spark/q/",
    ),
]

RESPONSES: list[m.Response | m.ErrorResponse] = [
    m.ConsumeResponse(next_offset=0, messages=[]),
    m.ConsumeResponse(next_offset=9, messages=[(7, b""), (8, b"data")]),
    m.ProduceResponse(offset=2**40),
    m.FlushResponse(),
    m.MetadataResponse(cluster_id="c", brokers=[], topics=[]),
    m.MetadataResponse(
        cluster_id="c",
        brokers=[m.BrokerEndpoint(id=1, host="h", port=9009)],
        topics=[
            m.TopicMetadata(
                topic="t",
                topic_id=bytes(range(16)),
                partitions=[m.PartitionMetadata(partition=0, leader=1, leader_epoch=2)],
            ),
            m.TopicMetadata(topic="u", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, partitions=[]),
        ],
    ),
    m.ProduceBatchResponse(
        partition=2,
        base_offset=10,
        last_offset=19,
        log_append_time_ms=-1,
        log_start_offset=0,
        durability=m.Durability.SYNCED,
    ),
    m.FetchResponse(partitions=[]),
    m.FetchResponse(
        partitions=[
            m.FetchedPartition(topic="t", partition=0, high_watermark=5, log_start_offset=1, batches=b"abc"),
            m.FetchedPartition(
                topic="t", partition=1, code=ErrorCode.OFFSET_OUT_OF_RANGE, message="out of range"
            ),
        ]
    ),
    m.FetchResponse(
        partitions=[
            m.FetchedPartition(
                topic="größe",
                partition=-1,
                high_watermark=2**63 - 1,
                log_start_offset=-(2**63),
                batches=bytes(9),
            )
        ]
    ),
    *(
        m.ProduceBatchResponse(
            partition=-1,
            base_offset=-1,
            last_offset=-1,
            log_append_time_ms=2**40,
            log_start_offset=7,
            durability=durability,
        )
        for durability in m.Durability
    ),
    m.ListOffsetsResponse(offset=-1, timestamp_ms=-1, leader_epoch=0),
    m.ListOffsetsResponse(offset=2**40, timestamp_ms=2**41, leader_epoch=2**31 - 1),
    m.AlterTopicResponse(topic_id=bytes(range(16)), partitions=-1, configs=[("a", "größe"), ("b", None)]),
    m.NamedProducerResponse(producer_id=-1, producer_epoch=-1, is_resumed=False),
    m.ConsumeResponse(next_offset=-(2**63), messages=((2**63 - 1, bytes(range(7))), (-1, b""))),
    m.PollResponse(
        lease="",
        expires_at_ms=-1,
        skipped=[m.SkippedPartition(topic="größe", partition=0, offset=0, next_offset=1)] * 2,
        partitions=[],
    ),
    m.CreateTopicResponse(topic_id=bytes(16), partitions=3, configs=(("a", "b"),)),
    m.DeleteTopicResponse(),
    m.DescribeTopicResponse(topic_id=bytes(16), partitions=3, configs=()),
    m.AlterTopicResponse(topic_id=bytes(16), partitions=3, configs=(("a", None),)),
    m.InitProducerIdResponse(producer_id=2**40, producer_epoch=0),
    m.FlushTopicResponse(),
    m.NamedProducerResponse(producer_id=2**40, producer_epoch=7, is_resumed=True),
    m.ProducerStateResponse(producer_epoch=-1, last_sequence=-1, last_offset=-1),
    m.ProducerStateResponse(producer_epoch=7, last_sequence=999, last_offset=2**40),
    m.JoinGroupResponse(
        member_id="m", generation=3, is_rebalancing=False, assignment=[("t", [0, 1]), ("u", [])]
    ),
    m.HeartbeatResponse(member_id="m", generation=3, is_rebalancing=True, assignment=[]),
    m.LeaveGroupResponse(),
    m.ClaimResponse(),
    m.ReleaseResponse(),
    m.CommitResponse(),
    m.CommittedResponse(offset=-1),
    m.CommittedResponse(offset=42, metadata="µ"),
    m.OwnerFetchResponse(high_watermark=9, log_start_offset=3, batches=b"batches"),
    m.PollResponse(lease=None),
    m.PollResponse(
        lease="l",
        expires_at_ms=2**40,
        skipped=[m.SkippedPartition(topic="t", partition=1, offset=3, next_offset=5)],
        partitions=[
            m.PolledPartition(
                topic="t", partition=1, offset=5, next_offset=9, deliveries=2, batches=b"batches"
            )
        ],
    ),
    m.AckResponse(),
    m.NackResponse(),
    m.ExtendResponse(expires_at_ms=2**40),
    m.LookUpKeyResponse(partition=-1),
    m.LookUpKeyResponse(partition=3, batches=b"batch"),
    m.AuthenticateResponse(is_done=True),
    m.AuthenticateResponse(is_done=False, lifetime_ms=2**40, data=b"r=nonce"),
    m.TableFetchResponse(next_offset=0, end_offset=0, is_last=True),
    m.TableFetchResponse(next_offset=2**40, end_offset=2**41, is_last=False, batches=b"batches"),
    m.ErrorResponse(response_type=m.MessageType.ERROR, message="what is this?"),
    m.ErrorResponse(response_type=m.MessageType.CONSUME_RESPONSE, message=""),
    *(m.ErrorResponse(response_type=kind, message="größe") for kind in (0x02, 0x04, 0x06)),
    *(
        m.ErrorResponse(response_type=kind, code=ErrorCode.UNKNOWN_SERVER_ERROR, message="no")
        for kind in m.RESPONSES
        if kind > m.LAST_ADR_0009_TYPE
    ),
    m.ErrorResponse(
        response_type=m.MessageType.POLL_RESPONSE,
        code=ErrorCode.LEASE_FENCED,
        message="lease 'l' was given on",
    ),
    m.ErrorResponse(
        response_type=m.MessageType.FETCH_RESPONSE, code=ErrorCode.INVALID_REQUEST, message="größe"
    ),
    m.IsolatedFetchResponse(
        partitions=[
            m.FetchedPartition(topic="t", partition=0, high_watermark=5, log_start_offset=1, batches=b"abc")
        ]
    ),
    m.TopicFetchResponse(
        partitions=[
            m.FetchedPartition(topic="t", partition=0, code=m.ErrorCode.UNKNOWN_TOPIC_ID, message="deleted")
        ]
    ),
    m.IsolatedListOffsetsResponse(offset=2, timestamp_ms=-1, leader_epoch=3),
    m.InitTransactionsResponse(producer_id=2**40, producer_epoch=0),
    m.InitUnlessOpenResponse(producer_id=2**40, producer_epoch=0),
    m.TransactionalProduceResponse(
        partition=3,
        base_offset=5,
        last_offset=7,
        log_append_time_ms=-1,
        log_start_offset=0,
        durability=m.Durability.SYNCED,
    ),
    m.ConditionalProduceResponse(
        partition=3,
        base_offset=5,
        last_offset=7,
        log_append_time_ms=-1,
        log_start_offset=0,
        durability=m.Durability.SYNCED,
    ),
    m.ConditionalProduceResponse(
        partition=3,
        base_offset=-1,
        last_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=-1,
        durability=m.Durability.NONE,
        code=ErrorCode.UNEXPECTED_END,
        message="größe",
        log_end_offset=2**40,
    ),
    m.MirrorAppendResponse(log_start_offset=7, log_end_offset=2**40 + 1, leader_epoch=-1),
    m.EndTransactionResponse(producer_id=2**40, producer_epoch=8),
    m.CommitTransactionsResponse(),
    m.HttpListenerResponse(port=8080, has_tls=False),
    m.HttpListenerResponse(port=0, has_tls=True),
]
