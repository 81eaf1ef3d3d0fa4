package stele.conformance;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** What the client's Admin does. */
final class Administration implements AutoCloseable {
    private final Admin admin;

    Administration(Connection connection) {
        admin = Admin.create(Map.copyOf(connection.properties()));
    }

    JsonObject offsets(Command command) throws Exception {
        TopicPartition topicPartition = command.topicPartition();
        OffsetSpec at;
        if (!command.isWord("at")) {
            at = OffsetSpec.forTimestamp(command.longNumber("at"));
        } else if (command.text("at").equals("earliest")) {
            at = OffsetSpec.earliest();
        } else {
            at = OffsetSpec.latest();
        }
        var found = await(command, admin.listOffsets(Map.of(topicPartition, at)).partitionResult(topicPartition));
        return Command.object("offset", found.offset());
    }

    JsonObject committed(Command command) throws Exception {
        TopicPartition topicPartition = command.topicPartition();
        String group = command.text("group");
        var spec = new ListConsumerGroupOffsetsSpec().topicPartitions(List.of(topicPartition));
        OffsetAndMetadata committed = await(
                        command,
                        admin.listConsumerGroupOffsets(Map.of(group, spec)).partitionsToOffsetAndMetadata(group))
                .get(topicPartition);
        JsonObject result = new JsonObject();
        result.addProperty("offset", committed == null ? -1 : committed.offset());
        result.addProperty("metadata", committed == null ? "" : committed.metadata());
        return result;
    }

    JsonObject createTopic(Command command) throws Exception {
        NewTopic topic =
                new NewTopic(command.text("topic"), Optional.of(command.number("partitions")), Optional.empty());
        await(command, admin.createTopics(List.of(topic.configs(command.configs()))).all());
        return new JsonObject();
    }

    JsonObject describeTopic(Command command) throws Exception {
        String topic = command.text("topic");
        var description = await(command, admin.describeTopics(List.of(topic)).topicNameValues().get(topic));
        ConfigResource resource = resource(command);
        var config = await(command, admin.describeConfigs(List.of(resource)).values().get(resource));
        JsonObject configs = new JsonObject();
        for (ConfigEntry entry : config.entries()) {
            configs.addProperty(entry.name(), entry.value());
        }
        JsonObject result = Command.object("partitions", description.partitions().size());
        result.add("configs", configs);
        return result;
    }

    JsonObject alterTopic(Command command) throws Exception {
        Collection<AlterConfigOp> alterations = new ArrayList<>();
        command.configs().forEach((name, value) ->
                alterations.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
        await(command, admin.incrementalAlterConfigs(Map.of(resource(command), alterations)).all());
        return new JsonObject();
    }

    private static ConfigResource resource(Command command) {
        return new ConfigResource(ConfigResource.Type.TOPIC, command.text("topic"));
    }

    JsonObject addPartitions(Command command) throws Exception {
        NewPartitions total = NewPartitions.increaseTo(command.number("partitions"));
        await(command, admin.createPartitions(Map.of(command.text("topic"), total)).all());
        return new JsonObject();
    }

    JsonObject deleteTopic(Command command) throws Exception {
        await(command, admin.deleteTopics(List.of(command.text("topic"))).all());
        return new JsonObject();
    }

    JsonObject listTopics(Command command) throws Exception {
        JsonArray topics = new JsonArray();
        await(command, admin.listTopics().names()).forEach(topics::add);
        return Command.object("topics", topics);
    }

    JsonObject deleteRecords(Command command) throws Exception {
        TopicPartition topicPartition = command.topicPartition();
        RecordsToDelete before = RecordsToDelete.beforeOffset(command.longNumber("before_offset"));
        var deleted = await(
                command, admin.deleteRecords(Map.of(topicPartition, before)).lowWatermarks().get(topicPartition));
        return Command.object("log_start_offset", deleted.lowWatermark());
    }

    JsonObject listGroups(Command command) throws Exception {
        JsonArray groups = new JsonArray();
        await(command, admin.listGroups(ListGroupsOptions.forConsumerGroups()).all())
                .forEach(group -> groups.add(group.groupId()));
        return Command.object("groups", groups);
    }

    JsonObject describeGroup(Command command) throws Exception {
        String group = command.text("group");
        ConsumerGroupDescription description =
                await(command, admin.describeConsumerGroups(List.of(group)).describedGroups().get(group));
        JsonObject result = new JsonObject();
        result.addProperty("state", description.groupState().toString());
        result.addProperty("members", description.members().size());
        return result;
    }

    JsonObject deleteGroup(Command command) throws Exception {
        await(command, admin.deleteConsumerGroups(List.of(command.text("group"))).all());
        return new JsonObject();
    }

    private static <T> T await(Command command, KafkaFuture<T> future) throws Exception {
        return future.get(command.timeout().toMillis(), TimeUnit.MILLISECONDS);
    }

    @Override
    public void close() {
        admin.close();
    }
}
