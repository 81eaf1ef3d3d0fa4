package stele.conformance.streams;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;

/**
 * Counts the words of a topic into a store with a changelog, at least once or {@code exactly_once_v2}.
 *
 * <p>What stands in the file PROPERTIES, a login for example, goes before what is set here.
 *
 * <p>Prints {@code version V}, {@code state S} and {@code restored STORE N}. The line {@code counts} on its standard
 * input prints {@code count WORD N} for each word of the store and {@code counted}; the end of the input closes it.
 */
public final class WordCount {
    private static final String STORE = "counts";

    public static void main(String[] arguments) throws IOException {
        if (arguments.length != 6) {
            System.err.println("usage: BOOTSTRAP STATE_DIRECTORY INPUT OUTPUT GUARANTEE PROPERTIES");
            System.exit(2);
        }
        System.out.println("version " + AppInfoParser.getVersion());
        try (KafkaStreams streams = streams(arguments)) {
            streams.setStateListener((state, before) -> System.out.println("state " + state));
            streams.setGlobalStateRestoreListener(new Restored());
            streams.start();
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                if (line.equals("counts")) {
                    printCounts(streams);
                }
            }
            if (!streams.close(Duration.ofSeconds(30))) {
                System.exit(1);
            }
        }
    }

    private static KafkaStreams streams(String[] arguments) throws IOException {
        String input = arguments[2];
        String output = arguments[3];
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "word-count");
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, arguments[1]);
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, arguments[4]);
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
        // Every count goes to the changelog, so that compaction has something to remove.
        properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        properties.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 6000);
        properties.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        try (Reader others = Files.newBufferedReader(Path.of(arguments[5]))) {
            properties.load(others);
        }

        // As a user would set them for a changelog that is to stay small.
        Map<String, String> changelog =
                Map.of("segment.ms", "500", "min.cleanable.dirty.ratio", "0.01", "file.delete.delay.ms", "0");
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream(input);
        lines.flatMapValues(line -> List.of(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.as("words"))
                .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as(STORE)
                        .withKeySerde(Serdes.String())
                        .withValueSerde(Serdes.Long())
                        .withLoggingEnabled(changelog))
                .toStream()
                .mapValues(count -> Long.toString(count))
                .to(output, Produced.with(Serdes.String(), Serdes.String()));
        return new KafkaStreams(builder.build(), properties);
    }

    private static void printCounts(KafkaStreams streams) {
        var store = streams.store(
                StoreQueryParameters.fromNameAndType(STORE, QueryableStoreTypes.<String, Long>keyValueStore()));
        try (var counts = store.all()) {
            while (counts.hasNext()) {
                var count = counts.next();
                System.out.println("count " + count.key + " " + count.value);
            }
        }
        System.out.println("counted");
    }

    private static final class Restored implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition partition, String store, long start, long end) {}

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long count) {}

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long count) {
            System.out.println("restored " + store + " " + count);
        }
    }
}
