"""What is called, in this order: a story on one fresh broker of one node.

A line is a tool without its prefix ``kafka-`` and its arguments, as in a shell; in a pair, standard input is the
second element. The runner adds the broker's address and puts the directory of ``FILES`` in place of ``{files}``.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tests.conformance.kafka_tools.compaction_calls import compaction_lines

# By the name of its script in Kafka's bin/: the class, and the option that takes the broker's address.
TOOLS: dict[str, tuple[str, str]] = {
    "acls": ("org.apache.kafka.tools.AclCommand", "--bootstrap-server"),
    "broker-api-versions": ("org.apache.kafka.tools.BrokerApiVersionsCommand", "--bootstrap-server"),
    "client-metrics": ("org.apache.kafka.tools.ClientMetricsCommand", "--bootstrap-server"),
    "cluster": ("org.apache.kafka.tools.ClusterTool", "--bootstrap-server"),
    "configs": ("kafka.admin.ConfigCommand", "--bootstrap-server"),
    "console-consumer": ("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server"),
    "console-producer": ("org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server"),
    "console-share-consumer": ("org.apache.kafka.tools.consumer.ConsoleShareConsumer", "--bootstrap-server"),
    "consumer-groups": ("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server"),
    "consumer-perf-test": ("org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server"),
    "delegation-tokens": ("org.apache.kafka.tools.DelegationTokenCommand", "--bootstrap-server"),
    "delete-records": ("org.apache.kafka.tools.DeleteRecordsCommand", "--bootstrap-server"),
    "features": ("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server"),
    "get-offsets": ("org.apache.kafka.tools.GetOffsetShell", "--bootstrap-server"),
    "groups": ("org.apache.kafka.tools.GroupsCommand", "--bootstrap-server"),
    "leader-election": ("org.apache.kafka.tools.LeaderElectionCommand", "--bootstrap-server"),
    "log-dirs": ("org.apache.kafka.tools.LogDirsCommand", "--bootstrap-server"),
    "metadata-quorum": ("org.apache.kafka.tools.MetadataQuorumCommand", "--bootstrap-server"),
    "producer-perf-test": ("org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server"),
    "reassign-partitions": (
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        "--bootstrap-server",
    ),
    "replica-verification": ("org.apache.kafka.tools.ReplicaVerificationTool", "--broker-list"),
    "share-groups": ("org.apache.kafka.tools.consumer.group.ShareGroupCommand", "--bootstrap-server"),
    "streams-application-reset": ("org.apache.kafka.tools.StreamsResetter", "--bootstrap-server"),
    "streams-groups": ("org.apache.kafka.tools.streams.StreamsGroupCommand", "--bootstrap-server"),
    "topics": ("org.apache.kafka.tools.TopicCommand", "--bootstrap-server"),
    "transactions": ("org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server"),
    "verifiable-consumer": ("org.apache.kafka.tools.VerifiableConsumer", "--bootstrap-server"),
    "verifiable-producer": ("org.apache.kafka.tools.VerifiableProducer", "--bootstrap-server"),
}

# Files that calls name.
FILES = {
    "delete.json": '{"partitions": [{"topic": "orders", "partition": 0, "offset": 2}], "version": 1}',
    "delete-all.json": '{"partitions": [{"topic": "orders", "partition": 1, "offset": -1}], "version": 1}',
    "delete-beyond.json": '{"partitions": [{"topic": "orders", "partition": 0, "offset": 99}], "version": 1}',
    "delete-missing.json": '{"partitions": [{"topic": "missing", "partition": 0, "offset": 1}], "version": 1}',
    "delete-twice.json": (
        '{"partitions": [{"topic": "orders", "partition": 0, "offset": 1},'
        ' {"topic": "orders", "partition": 0, "offset": 2}], "version": 1}'
    ),
    "delete-bad.json": '{"partitions": 1}',
    "to-move.json": '{"topics": [{"topic": "orders"}], "version": 1}',
    "same-place.json": (
        '{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1]}]}'
    ),
    "other-place.json": (
        '{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [7]}]}'
    ),
    "elect.json": '{"partitions": [{"topic": "orders", "partition": 0}, {"topic": "missing", "partition": 0}]}',
    "offsets.csv": "orders,0,1\norders,1,0\n",
}


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool; ``text`` is how it is named everywhere."""

    tool: str
    arguments: tuple[str, ...]
    stdin: str = ""

    @property
    def text(self) -> str:
        return f"kafka-{self.tool} {shlex.join(self.arguments)}"

    @property
    def only_reads(self) -> bool:
        """True if it may be repeated: it changes nothing, not even a position."""
        return self.tool == "get-offsets" or bool(
            {"--describe", "--list", "describe", "list"} & {*self.arguments}
        )


@dataclass(frozen=True, slots=True)
class Member:
    """A consumer of a group that starts to live, or ends, between two calls."""

    group: str
    topic: str
    change: Literal["joins", "leaves"]


Step = Call | Member
Line = str | tuple[str, str] | Member

# Each with a value that is not its default, and one that is none.
TOPIC_CONFIGS = {
    "cleanup.policy": ("delete", "shred"),
    "compression.gzip.level": ("9", "99"),
    "compression.lz4.level": ("12", "99"),
    "compression.type": ("zstd", "brotli"),
    "compression.zstd.level": ("5", "99"),
    "delete.retention.ms": ("1000", "-7"),
    "errors.deadletterqueue.topic.enable": ("true", "perhaps"),
    "file.delete.delay.ms": ("1000", "-7"),
    "flush.messages": ("10", "0"),
    "flush.ms": ("1000", "-7"),
    "follower.replication.throttled.replicas": ("0:0", "x"),
    "index.interval.bytes": ("1024", "-7"),
    "leader.replication.throttled.replicas": ("*", "x"),
    "local.retention.bytes": ("-2", "-7"),
    "local.retention.ms": ("-2", "-7"),
    "max.compaction.lag.ms": ("1000000", "0"),
    "max.message.bytes": ("2000000", "-7"),
    "message.timestamp.after.max.ms": ("3600000", "-7"),
    "message.timestamp.before.max.ms": ("3600000", "-7"),
    "message.timestamp.type": ("LogAppendTime", "Sometimes"),
    "min.cleanable.dirty.ratio": ("0.2", "2"),
    "min.compaction.lag.ms": ("1000", "-7"),
    "min.insync.replicas": ("2", "0"),
    "preallocate": ("true", "perhaps"),
    "remote.copy.disable": ("true", "perhaps"),
    "remote.log.copy.disable": ("true", "perhaps"),
    "remote.log.delete.on.disable": ("true", "perhaps"),
    "remote.storage.enable": ("false", "true"),
    "retention.bytes": ("1000000", "-7"),
    "retention.ms": ("3600000", "-7"),
    "segment.bytes": ("2000000", "1"),
    "segment.index.bytes": ("100000", "-7"),
    "segment.jitter.ms": ("1000", "-7"),
    "segment.ms": ("60000", "0"),
    "unclean.leader.election.enable": ("true", "perhaps"),
    "message.format.version": ("3.0", "x"),
    "message.downconversion.enable": ("true", "perhaps"),
    "no.such.config": ("1", "2"),
}
# Dynamic ones of a broker, one that only a restart changes, one that does not exist.
BROKER_CONFIGS = {
    "log.retention.ms": ("3600000", "-7"),
    "log.retention.bytes": ("1000000000", "x"),
    "log.segment.bytes": ("100000000", "1"),
    "log.cleanup.policy": ("delete", "shred"),
    "message.max.bytes": ("2000000", "-7"),
    "compression.type": ("zstd", "brotli"),
    "log.message.timestamp.type": ("LogAppendTime", "Sometimes"),
    "min.insync.replicas": ("1", "0"),
    "unclean.leader.election.enable": ("true", "perhaps"),
    "max.connections": ("1000", "-7"),
    "num.io.threads": ("9", "0"),
    "background.threads": ("11", "0"),
    "log.flush.interval.ms": ("1000", "x"),
    "num.partitions": ("4", "0"),
    "auto.create.topics.enable": ("false", "perhaps"),
    "default.replication.factor": ("1", "0"),
    "broker.id": ("5", "x"),
    "no.such.config": ("1", "2"),
}


def _topics() -> Iterator[Line]:
    yield "topics --list"
    yield "topics --describe"
    yield "topics --create --topic orders --partitions 3 --replication-factor 1"
    yield "topics --create --topic orders --partitions 3"
    yield "topics --create --topic orders --replication-factor 3"
    yield "topics --create --topic orders --config no.such=1"
    yield "topics --create --topic orders --if-not-exists"
    yield "topics --create --topic orders --if-not-exists --replication-factor 3 --config retention.ms=x"
    yield "topics --create --topic three-replicas --replication-factor 3"
    yield "topics --create --topic no-partitions --partitions 0"
    yield "topics --create --topic 'bad name'"
    yield "topics --create --topic .."
    yield "topics --create --topic a.b"
    yield "topics --create --topic a_b"
    yield "topics --create --topic configured --config retention.ms=1000000 --config max.message.bytes=2000000"
    yield "topics --create --topic nonsense --config retention.ms=abc"
    yield "topics --create --topic nonsense --config no.such.config=1"
    yield "topics --create --topic assigned --replica-assignment 1,1"
    yield "topics --create --topic misassigned --replica-assignment 7"
    yield "topics --create --topic misassigned --replica-assignment 1:1"
    yield "topics --create --topic compacted --config cleanup.policy=compact"
    yield "topics --describe --topic compacted"
    yield "topics --delete --topic compacted --if-exists"
    yield "topics --list"
    yield "topics --list --exclude-internal"
    yield "topics --list --topic 'or.*'"
    yield "topics --describe"
    yield "topics --describe --topic orders"
    yield "topics --describe --topic missing"
    yield "topics --describe --topic missing --if-exists"
    yield "topics --describe --topic-id AAAAAAAAAAAAAAAAAAAAAQ"
    yield "topics --describe --topics-with-overrides"
    yield "topics --describe --under-replicated-partitions"
    yield "topics --describe --under-min-isr-partitions"
    yield "topics --describe --at-min-isr-partitions"
    yield "topics --describe --unavailable-partitions"
    yield "topics --describe --exclude-internal --partition-size-limit-per-response 1"
    yield "topics --alter --topic orders --partitions 4"
    yield "topics --alter --topic orders --partitions 4"
    yield "topics --alter --topic orders --partitions 2"
    yield "topics --alter --topic orders --partitions 6 --replica-assignment 1,1,1,1,1,7"
    yield "topics --alter --topic missing --partitions 2"
    yield "topics --alter --topic missing --if-exists --partitions 2"
    yield "topics --delete --topic missing"
    yield "topics --delete --topic missing --if-exists"
    yield "topics --delete --topic a.b"
    yield "topics --describe --topic a.b"


def _topic_configs() -> Iterator[Line]:
    yield "topics --create --topic tuned"
    yield "configs --describe --topic tuned"
    yield "configs --describe --topic tuned --all"
    yield "configs --describe --entity-type topics"
    yield "configs --describe --topic missing"
    yield "configs --alter --topic missing --add-config retention.ms=1"
    for name, (value, nonsense) in TOPIC_CONFIGS.items():
        yield f"configs --alter --topic tuned --add-config {name}={nonsense}"
        yield f"configs --alter --topic tuned --add-config {name}={value}"
        yield "configs --describe --topic tuned"
        yield f"configs --alter --topic tuned --delete-config {name}"
    yield "configs --alter --topic tuned --delete-config retention.ms"
    yield "configs --alter --topic tuned --add-config retention.ms=1000,retention.bytes=x"
    yield "configs --alter --topic tuned --add-config retention.ms=1000,segment.ms=2000 --delete-config flush.ms"
    yield "configs --describe --topic tuned"
    yield "configs --alter --topic tuned --add-config cleanup.policy=[compact,delete]"
    yield "configs --alter --topic tuned --delete-config retention.ms,segment.ms,cleanup.policy"
    yield "configs --describe --topic tuned"
    yield from compaction_lines()
    yield "topics --create --topic strict --config min.insync.replicas=2"
    yield "topics --describe --topic strict"
    yield "topics --describe --under-min-isr-partitions"


def _broker_configs() -> Iterator[Line]:
    yield "configs --describe --broker 1"
    yield "configs --describe --broker 1 --all"
    yield "configs --describe --entity-type brokers"
    yield "configs --describe --entity-type brokers --entity-default"
    yield "configs --describe --entity-type brokers --entity-default --all"
    for name, (value, nonsense) in BROKER_CONFIGS.items():
        yield f"configs --alter --broker 1 --add-config {name}={nonsense}"
        yield f"configs --alter --broker 1 --add-config {name}={value}"
        yield "configs --describe --broker 1"
        yield f"configs --alter --broker 1 --delete-config {name}"
    yield "configs --alter --entity-type brokers --entity-default --add-config log.retention.ms=7200000"
    yield "configs --describe --entity-type brokers --entity-default"
    yield "configs --describe --topic orders --all"
    yield "configs --alter --entity-type brokers --entity-default --delete-config log.retention.ms"


def _other_configs() -> Iterator[Line]:
    yield "configs --describe --broker-logger 1"
    yield "configs --alter --broker-logger 1 --add-config kafka.server.KafkaApis=NOISY"
    yield "configs --alter --broker-logger 1 --add-config kafka.no.such.logger=INFO"
    yield "configs --describe --entity-type groups"
    yield "configs --describe --group tuned-group"
    yield "configs --alter --group tuned-group --add-config consumer.session.timeout.ms=50000"
    yield "configs --describe --group tuned-group"
    yield "configs --alter --group tuned-group --add-config no.such.config=1"
    yield "configs --alter --group tuned-group --delete-config consumer.session.timeout.ms"
    yield "configs --describe --entity-type client-metrics"
    yield "configs --describe --client-metrics subscription"
    yield (
        "configs --alter --client-metrics subscription"
        " --add-config metrics=[org.apache.kafka.producer.],interval.ms=30000"
    )
    yield "configs --describe --client-metrics subscription"
    yield "configs --alter --client-metrics subscription --add-config interval.ms=1"
    yield "configs --alter --client-metrics subscription --delete-config metrics,interval.ms"
    yield "client-metrics --list"
    yield "client-metrics --describe"
    yield "client-metrics --describe --name subscription"
    yield "client-metrics --alter --name other --metrics org.apache.kafka.producer. --interval 30000"
    yield "client-metrics --describe --name other"
    yield "client-metrics --delete --name other"
    yield "configs --describe --entity-type users"
    yield "configs --describe --user alice"
    yield "configs --describe --entity-type clients"
    yield "configs --describe --client app"
    yield "configs --describe --entity-type ips"
    yield "configs --alter --client app --add-config producer_byte_rate=1048576"
    yield "configs --describe --client app"
    yield "configs --alter --client app --delete-config producer_byte_rate"
    yield "configs --alter --client app --add-config no_such_rate=1"
    yield "configs --alter --client app --add-config producer_byte_rate=1.5"
    yield (
        "configs --alter --entity-type users --entity-name alice --entity-type clients --entity-default"
        " --add-config consumer_byte_rate=2097152,request_percentage=12.5"
    )
    yield "configs --alter --entity-type users --entity-default --add-config producer_byte_rate=1048576"
    yield "configs --describe --entity-type users"
    yield "configs --describe --entity-type users --entity-type clients"
    yield "configs --describe --entity-type users --entity-name alice --entity-type clients --entity-default"
    yield (
        "configs --alter --entity-type users --entity-name alice --entity-type clients --entity-default"
        " --delete-config consumer_byte_rate,request_percentage"
    )
    yield "configs --alter --entity-type users --entity-default --delete-config producer_byte_rate"
    yield "configs --alter --entity-type ips --entity-name 192.0.2.7 --add-config connection_creation_rate=100"
    yield "configs --alter --entity-type ips --entity-default --add-config connection_creation_rate=1000"
    yield "configs --describe --entity-type ips"
    yield "configs --alter --entity-type ips --entity-name 192.0.2.7 --delete-config connection_creation_rate"
    yield "configs --alter --entity-type ips --entity-default --delete-config connection_creation_rate"
    yield "configs --describe --entity-type ips"
    yield "configs --alter --user alice --add-config SCRAM-SHA-256=[password=secret]"


def _records() -> Iterator[Line]:
    yield "console-producer --topic orders", ""
    keyed = "--reader-property parse.key=true --reader-property key.separator=:"
    yield f"console-producer --topic orders {keyed}", "a:1\nb:2\nc:3\na:4\nb:5\nc:6\nd:7\n"
    yield f"console-producer --topic orders {keyed}", "no separator\n"
    yield (
        f"console-producer --topic orders {keyed} --reader-property parse.headers=true"
        " --compression-codec zstd --sync",
        "trace:1,lang:el\ta:λόγος\n",
    )
    yield f"console-producer --topic orders {keyed} --reader-property null.marker=NULL", "a:NULL\n"
    yield "console-producer --topic 'bad name' --sync", "1\n"
    yield "console-producer --topic orders --request-required-acks 1 --compression-codec lz4", ""
    yield "console-producer --topic auto-made --sync", "made by producing\n"
    yield "topics --describe --topic auto-made"
    for partition in range(4):
        shown = "key headers timestamp partition offset"
        properties = " ".join(
            f"--formatter-property print.{name}=true" for name in shown.split() if name != "timestamp"
        )
        yield (
            f"console-consumer --topic orders --partition {partition} --offset earliest {properties}"
            " --timeout-ms 1500"
        )
    yield "console-consumer --topic orders --partition 0 --offset 1 --max-messages 1"
    yield "console-consumer --topic orders --partition 0 --offset 99 --timeout-ms 1500"
    yield "console-consumer --topic orders --partition 9 --offset 0 --timeout-ms 1500"
    yield "console-consumer --topic orders --partition 0 --offset latest --timeout-ms 1500"
    yield "console-consumer --topic made-by-reading --partition 0 --offset earliest --timeout-ms 1500"
    yield "topics --describe --topic made-by-reading"
    yield "console-consumer --topic 'bad name' --from-beginning --timeout-ms 1500"
    yield "console-consumer --include 'auto-m.*' --group patterns --from-beginning --max-messages 1"
    yield (
        "console-consumer --topic auto-made --group careful --from-beginning --max-messages 1"
        " --isolation-level read_committed"
    )
    yield "get-offsets"
    yield "get-offsets --exclude-internal-topics"
    yield "get-offsets --topic orders"
    for time in (
        "-1",
        "-2",
        "-3",
        "-4",
        "-5",
        "-6",
        "latest",
        "earliest",
        "max-timestamp",
        "1",
        "9999999999999",
    ):
        yield f"get-offsets --topic orders --time {time}"
    yield "get-offsets --topic orders --partitions 0,2"
    yield "get-offsets --topic-partitions orders:0,orders:2-3,a_b:0"
    yield "get-offsets --topic missing"
    yield "get-offsets --topic orders --partitions 9"
    yield "log-dirs --describe --topic-list orders,auto-made"
    yield "log-dirs --describe --broker-list 1 --topic-list missing"
    yield "log-dirs --describe --broker-list 7"
    yield "log-dirs --describe"
    yield "transactions describe-producers --topic orders --partition 0"


def _groups() -> Iterator[Line]:
    yield "consumer-groups --list"
    yield "consumer-groups --describe --all-groups"
    yield "consumer-groups --describe --group missing"
    yield "consumer-groups --describe --group missing --members"
    yield "consumer-groups --describe --group missing --state"
    yield "console-consumer --topic orders --group readers --from-beginning --max-messages 9 --timeout-ms 30000 --formatter org.apache.kafka.tools.consumer.NoOpMessageFormatter"
    yield "consumer-groups --list"
    yield "consumer-groups --list --state"
    yield "consumer-groups --list --state Empty"
    yield "consumer-groups --list --type"
    yield "consumer-groups --list --type consumer"
    yield "consumer-groups --describe --group readers"
    yield "consumer-groups --describe --group readers --members"
    yield "consumer-groups --describe --group readers --members --verbose"
    yield "consumer-groups --describe --group readers --state"
    yield "consumer-groups --describe --group readers --state --verbose"
    yield "consumer-groups --describe --group readers --offsets --verbose"
    yield Member("live", "orders", "joins")
    yield "consumer-groups --list --state"
    yield "consumer-groups --describe --group live"
    yield "consumer-groups --describe --group live --members"
    yield "consumer-groups --describe --group live --members --verbose"
    yield "consumer-groups --describe --group live --state"
    yield "consumer-groups --describe --all-groups --state"
    yield "consumer-groups --describe --all-groups"
    yield "consumer-groups --delete --group live"
    yield "consumer-groups --delete-offsets --group live --topic orders"
    yield "consumer-groups --reset-offsets --group live --topic orders --to-earliest --execute"
    yield "topics --delete --topic missing-too"
    yield Member("live", "orders", "leaves")
    yield "consumer-groups --describe --group live --state"
    readers = "consumer-groups --reset-offsets --group readers"
    yield f"{readers} --topic orders --to-earliest --dry-run"
    yield f"{readers} --topic orders:0 --to-offset 1 --execute"
    yield f"{readers} --topic orders:0 --to-offset 99 --execute"
    yield f"{readers} --topic orders:0,1 --shift-by 1 --execute"
    yield f"{readers} --topic orders --shift-by -1 --dry-run"
    yield f"{readers} --topic orders --to-latest --execute"
    yield f"{readers} --topic orders --to-current --dry-run"
    yield f"{readers} --topic orders --to-datetime 2020-01-01T00:00:00.000 --dry-run"
    yield f"{readers} --topic orders --to-datetime 2099-01-01T00:00:00.000 --dry-run"
    yield f"{readers} --topic orders --by-duration PT1H --dry-run"
    yield f"{readers} --all-topics --to-earliest --dry-run --export"
    yield f"{readers} --from-file {{files}}/offsets.csv --execute"
    yield f"{readers} --topic missing --to-earliest --dry-run"
    yield "consumer-groups --reset-offsets --group newly-made --topic orders --to-earliest --execute"
    yield "consumer-groups --describe --group newly-made"
    yield "consumer-groups --describe --group readers"
    yield "consumer-groups --delete-offsets --group readers --topic orders:0"
    yield "consumer-groups --delete-offsets --group readers --topic missing"
    yield "consumer-groups --describe --group readers"
    yield "consumer-groups --delete --group newly-made"
    yield "consumer-groups --delete --group missing"
    yield "consumer-groups --delete --group missing --group live"
    yield "consumer-groups --list"
    yield "consumer-groups --validate-regex --regex 'or.*'"
    yield "groups --list"
    yield "groups --list --consumer"
    yield "groups --list --share"
    yield "groups --list --group-type classic"
    yield "groups --list --protocol consumer"
    yield "share-groups --list"
    yield "share-groups --describe --all-groups"
    yield "share-groups --describe --group missing"
    yield "share-groups --delete --group missing"
    yield "streams-groups --list"
    yield "streams-groups --describe --all-groups"
    yield "streams-application-reset --application-id readers --input-topics orders --dry-run"
    yield "streams-application-reset --application-id readers --input-topics orders"
    yield "streams-application-reset --application-id readers --input-topics missing --dry-run"
    yield (
        "console-consumer --topic __consumer_offsets --from-beginning --timeout-ms 3000"
        " --formatter org.apache.kafka.tools.consumer.OffsetsMessageFormatter"
    )
    yield "topics --describe --topic __consumer_offsets"
    yield "topics --list"
    yield "topics --list --exclude-internal"
    yield "topics --delete --topic __consumer_offsets"
    yield "console-producer --topic __consumer_offsets --sync", "x\n"


def _deletions() -> Iterator[Line]:
    yield "delete-records --offset-json-file {files}/delete.json"
    yield "get-offsets --topic orders --time earliest"
    yield "delete-records --offset-json-file {files}/delete-all.json"
    yield "delete-records --offset-json-file {files}/delete-beyond.json"
    yield "delete-records --offset-json-file {files}/delete-missing.json"
    yield "delete-records --offset-json-file {files}/delete-twice.json"
    yield "delete-records --offset-json-file {files}/delete-bad.json"
    yield "get-offsets --topic orders --time earliest"
    yield "console-consumer --topic orders --partition 0 --offset earliest --timeout-ms 1500"


def _cluster() -> Iterator[Line]:
    yield "broker-api-versions"
    yield "cluster cluster-id"
    yield "cluster list-endpoints"
    yield "cluster list-endpoints --include-fenced-brokers"
    yield "cluster unregister --id 9"
    yield "metadata-quorum describe --status"
    yield "metadata-quorum describe --replication"
    yield "leader-election --election-type preferred --topic orders --partition 0"
    yield "leader-election --election-type unclean --topic orders --partition 0"
    yield "leader-election --election-type preferred --all-topic-partitions"
    yield "leader-election --election-type preferred --path-to-json-file {files}/elect.json"
    yield "leader-election --election-type preferred --topic missing --partition 0"
    moves = "reassign-partitions --reassignment-json-file {files}"
    yield "reassign-partitions --list"
    yield "reassign-partitions --generate --topics-to-move-json-file {files}/to-move.json --broker-list 1"
    yield f"{moves}/same-place.json --verify"
    yield f"{moves}/same-place.json --execute"
    yield f"{moves}/same-place.json --cancel"
    yield f"{moves}/other-place.json --execute"
    yield "features describe"
    yield "features upgrade --feature metadata.version=9999"
    yield "features upgrade --feature no.such.feature=1"
    yield "features version-mapping"
    yield "transactions list"
    yield "transactions describe --transactional-id missing"
    yield "transactions find-hanging --broker-id 1"
    yield "transactions abort --topic orders --partition 0 --start-offset 0"
    yield "acls --list"
    yield "acls --add --allow-principal User:alice --operation Read --topic orders"
    yield "acls --remove --allow-principal User:alice --operation Read --topic orders --force"
    yield "delegation-tokens --describe"
    yield "replica-verification --topics-include orders"


def _programs() -> Iterator[Line]:
    yield "verifiable-producer --topic verified --max-messages 5 --value-prefix 7 --acks -1"
    yield "verifiable-producer --topic 'bad name' --max-messages 1"
    yield "verifiable-consumer --topic verified --group-id verifiers --max-messages 5 --reset-policy earliest"
    yield (
        "producer-perf-test --topic perf --num-records 50 --record-size 100 --throughput -1"
        " --command-property acks=all"
    )
    yield "consumer-perf-test --topic perf --num-records 50 --timeout 5000"
    yield "get-offsets --topic perf"
    yield (
        "producer-perf-test --topic perf --num-records 5 --record-size 100 --throughput -1"
        " --transactional-id tx --transaction-duration-ms 600000"
    )
    yield "transactions list"
    yield "transactions list --duration-filter 100000"
    yield "transactions list --transactional-id-pattern t.*"
    yield "transactions list --transactional-id-pattern 't('"
    yield "transactions describe --transactional-id tx"
    yield "transactions describe-producers --topic perf --partition 0"
    yield "transactions abort --topic perf --partition 0 --start-offset 0"
    yield "get-offsets --topic perf"
    yield "console-share-consumer --topic orders --timeout-ms 1500"
    yield (
        "console-consumer --topic orders --consumer-property group.protocol=consumer --from-beginning"
        " --max-messages 1 --timeout-ms 5000"
    )


def steps() -> list[Step]:
    """Everything, in order."""
    lines = [
        *_topics(),
        *_topic_configs(),
        *_broker_configs(),
        *_other_configs(),
        *_records(),
        *_groups(),
        *_deletions(),
        *_cluster(),
        *_programs(),
    ]
    return [_step(line) for line in lines]


def _step(line: Line) -> Step:
    if isinstance(line, Member):
        return line
    text, stdin = (line, "") if isinstance(line, str) else line
    tool, *arguments = shlex.split(text)
    return Call(tool, tuple(arguments), stdin)
