package stele.conformance;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Collection;
import java.util.Comparator;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** The consumers of groups, by the names the tests gave them. */
final class Members implements AutoCloseable {
    private static final Duration SLICE = Duration.ofMillis(100);

    private final Connection connection;
    private final Map<String, Member> members = new LinkedHashMap<>();

    Members(Connection connection) {
        this.connection = connection;
    }

    /** Heartbeats go on in the background of the client; rebalances happen while it polls. */
    private static final class Member implements ConsumerRebalanceListener {
        final Consumer<byte[], byte[]> consumer;
        final Deque<ConsumerRecord<byte[], byte[]>> kept = new ArrayDeque<>();
        boolean assigned;

        Member(Consumer<byte[], byte[]> consumer) {
            this.consumer = consumer;
        }

        void meet(Duration limit) {
            consumer.poll(limit).forEach(kept::add);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            assigned = true;
        }

        /** Whoever has these partitions next meets their records again, from what was committed. */
        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            Set<TopicPartition> lost = new HashSet<>(partitions);
            kept.removeIf(record -> lost.contains(new TopicPartition(record.topic(), record.partition())));
        }

        JsonObject assignment() {
            JsonArray assignment = new JsonArray();
            consumer.assignment().stream()
                    .sorted(Comparator.comparing(TopicPartition::topic).thenComparing(TopicPartition::partition))
                    .forEach(topicPartition -> {
                        JsonArray pair = new JsonArray();
                        pair.add(topicPartition.topic());
                        pair.add(topicPartition.partition());
                        assignment.add(pair);
                    });
            return Command.object("assignment", assignment);
        }
    }

    JsonObject join(Command command) {
        if (members.containsKey(command.text("member"))) {
            throw new Failure("MEMBER_EXISTS", command.text("member"));
        }
        Deadline deadline = command.deadline();
        int sessionTimeout = command.has("session_timeout_ms") ? command.number("session_timeout_ms") : 6000;
        Properties settings = new Properties();
        settings.put(ConsumerConfig.GROUP_ID_CONFIG, command.text("group"));
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, command.text("start", "earliest"));
        if (command.has("protocol")) {
            // The broker tells such a member its session timeout and how often to send heartbeats.
            settings.put(ConsumerConfig.GROUP_PROTOCOL_CONFIG, command.text("protocol"));
        } else {
            settings.put(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, sessionTimeout);
            // A member learns of a rebalance by its heartbeat; the default of 3 s would make the tests slow.
            settings.put(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, 500);
        }
        if (command.has("instance_id")) {
            settings.put(ConsumerConfig.GROUP_INSTANCE_ID_CONFIG, command.text("instance_id"));
        }
        Member member = new Member(Records.consumer(connection, settings));
        try {
            member.consumer.subscribe(command.texts("topics"), member);
            while (!member.assigned) {
                if (deadline.over()) {
                    throw Failure.timedOut();
                }
                member.meet(deadline.left(SLICE));
            }
        } catch (RuntimeException e) {
            member.consumer.close();
            throw e;
        }
        members.put(command.text("member"), member);
        return member.assignment();
    }

    JsonObject assignment(Command command) {
        Member member = member(command);
        Deadline deadline = Deadline.after(Duration.ofMillis(command.has("poll_ms") ? command.longNumber("poll_ms") : 500));
        do {
            member.meet(deadline.left(SLICE));
        } while (!deadline.over());
        return member.assignment();
    }

    JsonObject poll(Command command) {
        Member member = member(command);
        Deadline deadline = command.deadline();
        int count = command.number("count");
        while (member.kept.size() < count && !deadline.over()) {
            member.meet(deadline.left(SLICE));
        }
        JsonArray records = new JsonArray();
        Iterator<ConsumerRecord<byte[], byte[]>> kept = member.kept.iterator();
        while (kept.hasNext() && records.size() < count) {
            ConsumerRecord<byte[], byte[]> record = kept.next();
            kept.remove();
            JsonObject json = Records.json(record);
            json.addProperty("topic", record.topic());
            records.add(json);
        }
        return Command.object("records", records);
    }

    JsonObject commit(Command command) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (JsonElement each : command.array("offsets")) {
            JsonArray offset = each.getAsJsonArray();
            offsets.put(
                    new TopicPartition(offset.get(0).getAsString(), offset.get(1).getAsInt()),
                    new OffsetAndMetadata(offset.get(2).getAsLong(), offset.get(3).getAsString()));
        }
        member(command).consumer.commitSync(offsets, command.timeout());
        return new JsonObject();
    }

    JsonObject leave(Command command) {
        Member member = member(command);
        members.remove(command.text("member"));
        member.consumer.close();
        return new JsonObject();
    }

    private Member member(Command command) {
        Member member = members.get(command.text("member"));
        if (member == null) {
            throw new Failure("NO_SUCH_MEMBER", command.text("member"));
        }
        return member;
    }

    @Override
    public void close() {
        members.values().forEach(member -> member.consumer.close());
    }
}
