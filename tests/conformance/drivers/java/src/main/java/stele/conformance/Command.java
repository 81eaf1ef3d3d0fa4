package stele.conformance;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;

/** The arguments of one command of tests/conformance/README.md, and how its values look in JSON. */
record Command(JsonObject json) {
    String text(String name) {
        return json.get(name).getAsString();
    }

    String text(String name, String otherwise) {
        return has(name) ? text(name) : otherwise;
    }

    int number(String name) {
        return json.get(name).getAsInt();
    }

    long longNumber(String name) {
        return json.get(name).getAsLong();
    }

    boolean flag(String name) {
        return has(name) && json.get(name).getAsBoolean();
    }

    boolean has(String name) {
        return json.has(name) && !json.get(name).isJsonNull();
    }

    /** Whether the argument is a word, such as "earliest", where a number may stand. */
    boolean isWord(String name) {
        return json.get(name).getAsJsonPrimitive().isString();
    }

    JsonArray array(String name) {
        return json.getAsJsonArray(name);
    }

    List<String> texts(String name) {
        List<String> texts = new ArrayList<>();
        array(name).forEach(each -> texts.add(each.getAsString()));
        return texts;
    }

    Map<String, String> configs() {
        Map<String, String> configs = new LinkedHashMap<>();
        if (has("configs")) {
            json.getAsJsonObject("configs").asMap()
                    .forEach((name, value) -> configs.put(name, value.isJsonNull() ? null : value.getAsString()));
        }
        return configs;
    }

    TopicPartition topicPartition() {
        return new TopicPartition(text("topic"), number("partition"));
    }

    /** Those of "partitions", or the one of "partition". */
    List<TopicPartition> topicPartitions() {
        if (!has("partitions")) {
            return List.of(topicPartition());
        }
        List<TopicPartition> topicPartitions = new ArrayList<>();
        array("partitions").forEach(each -> topicPartitions.add(new TopicPartition(text("topic"), each.getAsInt())));
        return topicPartitions;
    }

    Duration timeout() {
        return Duration.ofMillis(has("timeout_ms") ? longNumber("timeout_ms") : 30_000);
    }

    Deadline deadline() {
        return Deadline.after(timeout());
    }

    /** Null is not the same as empty. */
    static byte[] bytes(JsonElement element) {
        return element == null || element.isJsonNull() ? null : Base64.getDecoder().decode(element.getAsString());
    }

    static JsonElement base64(byte[] bytes) {
        return bytes == null ? JsonNull.INSTANCE : new JsonPrimitive(Base64.getEncoder().encodeToString(bytes));
    }

    static JsonObject object(String name, JsonElement value) {
        JsonObject object = new JsonObject();
        object.add(name, value);
        return object;
    }

    static JsonObject object(String name, long value) {
        return object(name, new JsonPrimitive(value));
    }
}
