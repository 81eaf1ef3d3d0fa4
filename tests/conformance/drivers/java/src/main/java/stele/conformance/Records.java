package stele.conformance;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Producing and fetching, without a group. */
final class Records {
    private final Connection connection;

    Records(Connection connection) {
        this.connection = connection;
    }

    JsonObject produce(Command command) throws Exception {
        Properties settings = new Properties();
        boolean idempotent = command.flag("idempotent");
        settings.put(ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, idempotent);
        settings.put(ProducerConfig.ACKS_CONFIG, idempotent ? "all" : command.text("acks", "all"));
        settings.put(ProducerConfig.COMPRESSION_TYPE_CONFIG, command.text("codec", "none"));
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (JsonElement each : command.array("records")) {
            records.add(producerRecord(command.text("topic"), each.getAsJsonObject()));
        }
        JsonArray offsets = new JsonArray();
        send(command, settings, records).forEach(metadata -> offsets.add(metadata.offset()));
        return Command.object("offsets", offsets);
    }

    static ProducerRecord<byte[], byte[]> producerRecord(String topic, JsonObject json) {
        JsonElement timestamp = json.get("timestamp");
        ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
                topic,
                json.get("partition").getAsInt(),
                timestamp == null || timestamp.isJsonNull() ? null : timestamp.getAsLong(),
                Command.bytes(json.get("key")),
                Command.bytes(json.get("value")));
        if (json.has("headers")) {
            for (JsonElement each : json.getAsJsonArray("headers")) {
                JsonArray header = each.getAsJsonArray();
                record.headers().add(header.get(0).getAsString(), Command.bytes(header.get(1)));
            }
        }
        return record;
    }

    JsonObject produceKeyed(Command command) throws Exception {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (JsonElement each : command.array("keys")) {
            byte[] key = Command.bytes(each);
            records.add(new ProducerRecord<>(command.text("topic"), key, key));
        }
        JsonArray partitions = new JsonArray();
        send(command, new Properties(), records).forEach(metadata -> partitions.add(metadata.partition()));
        return Command.object("partitions", partitions);
    }

    private List<RecordMetadata> send(
            Command command, Properties settings, List<ProducerRecord<byte[], byte[]>> records) throws Exception {
        Deadline deadline = command.deadline();
        settings.putAll(connection.properties());
        // How long `send` itself waits, for example for a topic to appear.
        settings.put(ProducerConfig.MAX_BLOCK_MS_CONFIG, command.timeout().toMillis());
        Producer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        try {
            List<Future<RecordMetadata>> futures = new ArrayList<>();
            for (ProducerRecord<byte[], byte[]> record : records) {
                futures.add(producer.send(record));
            }
            List<RecordMetadata> sent = new ArrayList<>();
            for (Future<RecordMetadata> future : futures) {
                sent.add(future.get(deadline.left().toMillis(), TimeUnit.MILLISECONDS));
            }
            return sent;
        } finally {
            producer.close(deadline.left()); // what was not sent in time is given up
        }
    }

    JsonObject fetch(Command command) {
        Deadline deadline = command.deadline();
        int count = command.number("count");
        JsonArray records = new JsonArray();
        try (Consumer<byte[], byte[]> consumer = consumer(connection, limits(command))) {
            List<TopicPartition> assignment = command.topicPartitions();
            consumer.assign(assignment);
            if (!command.isWord("offset")) {
                assignment.forEach(each -> consumer.seek(each, command.longNumber("offset")));
            } else if (command.text("offset").equals("earliest")) {
                consumer.seekToBeginning(assignment);
            } else {
                consumer.seekToEnd(assignment);
            }
            while (records.size() < count) {
                if (deadline.over()) {
                    throw Failure.timedOut();
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(deadline.left())) {
                    if (records.size() < count) {
                        records.add(json(record));
                    }
                }
            }
        }
        return Command.object("records", records);
    }

    private static Properties limits(Command command) {
        Properties settings = new Properties();
        if (command.has("max_bytes")) {
            settings.put(ConsumerConfig.FETCH_MAX_BYTES_CONFIG, command.number("max_bytes"));
        }
        if (command.has("partition_max_bytes")) {
            settings.put(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG, command.number("partition_max_bytes"));
        }
        if (command.has("isolation")) {
            settings.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_" + command.text("isolation"));
        }
        return settings;
    }

    /** A consumer with these settings; auto-commit is off, and no offset is made up where there is none. */
    static Consumer<byte[], byte[]> consumer(Connection connection, Properties settings) {
        settings.putAll(connection.properties());
        settings.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        settings.putIfAbsent(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "none");
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static JsonObject json(ConsumerRecord<byte[], byte[]> record) {
        JsonObject json = new JsonObject();
        json.addProperty("partition", record.partition());
        json.addProperty("offset", record.offset());
        json.addProperty("timestamp", record.timestamp());
        json.add("key", Command.base64(record.key()));
        json.add("value", Command.base64(record.value()));
        JsonArray headers = new JsonArray();
        for (Header header : record.headers()) {
            JsonArray pair = new JsonArray();
            pair.add(new JsonPrimitive(header.key()));
            pair.add(Command.base64(header.value()));
            headers.add(pair);
        }
        json.add("headers", headers);
        return json;
    }
}
