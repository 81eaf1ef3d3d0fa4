package stele.conformance;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Transactional producers, which live until the driver ends. */
final class Transactions implements AutoCloseable {
    private final Connection connection;
    private final Map<String, Producer<byte[], byte[]>> producers = new HashMap<>();

    Transactions(Connection connection) {
        this.connection = connection;
    }

    JsonObject transact(Command command) throws Exception {
        Deadline deadline = command.deadline();
        Producer<byte[], byte[]> producer = producers.get(command.text("producer"));
        boolean isNew = producer == null;
        if (isNew) {
            producer = begin(command);
        }
        if (isNew || command.flag("begins")) {
            producer.beginTransaction();
        }
        List<Future<RecordMetadata>> futures = new ArrayList<>();
        for (JsonElement each : command.array("records")) {
            futures.add(producer.send(Records.producerRecord(command.text("topic"), each.getAsJsonObject())));
        }
        for (Future<RecordMetadata> future : futures) {
            future.get(deadline.left().toMillis(), TimeUnit.MILLISECONDS);
        }
        if (command.has("offset")) {
            producer.sendOffsetsToTransaction(
                    Map.of(
                            new TopicPartition(command.text("source"), 0),
                            new OffsetAndMetadata(command.longNumber("offset"))),
                    new ConsumerGroupMetadata(command.text("group")));
        }
        switch (command.text("end")) {
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            default -> { }
        }
        return new JsonObject();
    }

    private Producer<byte[], byte[]> begin(Command command) {
        Properties settings = new Properties();
        settings.putAll(connection.properties());
        settings.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, command.text("transactional_id"));
        settings.put(ProducerConfig.MAX_BLOCK_MS_CONFIG, command.timeout().toMillis());
        Producer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        producers.put(command.text("producer"), producer);
        producer.initTransactions();
        return producer;
    }

    @Override
    public void close() {
        producers.values().forEach(producer -> producer.close(Duration.ZERO));
    }
}
