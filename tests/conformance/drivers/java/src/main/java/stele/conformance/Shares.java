package stele.conformance;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** The members of share groups, by the names the tests gave them. */
final class Shares implements AutoCloseable {
    private final Connection connection;
    private final Map<String, Member> members = new LinkedHashMap<>();

    Shares(Connection connection) {
        this.connection = connection;
    }

    /** What it holds, by topic, partition and offset; all of it has to be settled before the next poll. */
    private record Member(
            KafkaShareConsumer<byte[], byte[]> consumer, Map<String, ConsumerRecord<byte[], byte[]>> held) {}

    JsonObject share(Command command) {
        if (members.containsKey(command.text("member"))) {
            throw new Failure("MEMBER_EXISTS", command.text("member"));
        }
        Properties settings = new Properties();
        settings.putAll(connection.properties());
        settings.put(ConsumerConfig.GROUP_ID_CONFIG, command.text("group"));
        settings.put(ConsumerConfig.SHARE_ACKNOWLEDGEMENT_MODE_CONFIG, "explicit");
        KafkaShareConsumer<byte[], byte[]> consumer =
                new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(command.texts("topics"));
        members.put(command.text("member"), new Member(consumer, new HashMap<>()));
        return new JsonObject();
    }

    JsonObject take(Command command) {
        Member member = member(command);
        Deadline deadline = command.deadline();
        JsonArray records = new JsonArray();
        while (records.isEmpty() && !deadline.over()) {
            for (ConsumerRecord<byte[], byte[]> record : member.consumer.poll(deadline.left())) {
                JsonObject json = Records.json(record);
                json.addProperty("topic", record.topic());
                json.addProperty("deliveries", record.deliveryCount().map(Short::intValue).orElse(0));
                records.add(json);
                member.held.put(place(record.topic(), record.partition(), record.offset()), record);
            }
        }
        return Command.object("records", records);
    }

    JsonObject settle(Command command) {
        Member member = member(command);
        for (JsonElement each : command.array("outcomes")) {
            JsonArray outcome = each.getAsJsonArray();
            String place = place(
                    outcome.get(0).getAsString(), outcome.get(1).getAsInt(), outcome.get(2).getAsLong());
            member.consumer.acknowledge(
                    member.held.remove(place),
                    AcknowledgeType.valueOf(outcome.get(3).getAsString().toUpperCase(Locale.ROOT)));
        }
        for (Optional<KafkaException> error : member.consumer.commitSync(command.timeout()).values()) {
            if (error.isPresent()) {
                throw error.get();
            }
        }
        return new JsonObject();
    }

    JsonObject unshare(Command command) {
        member(command).consumer.close();
        members.remove(command.text("member"));
        return new JsonObject();
    }

    private static String place(String topic, int partition, long offset) {
        return topic + "/" + partition + "/" + offset;
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
