package stele.conformance;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.common.protocol.Errors;

/** The conformance driver for Apache Kafka's own Java client. */
public final class Main {
    private static final Gson JSON = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();

    public static void main(String[] arguments) throws IOException {
        if (arguments.length != 1 && arguments.length != 2) {
            System.err.println("usage: java BOOTSTRAP [LOGIN]");
            System.exit(2);
        }
        Connection connection = Connection.of(arguments);
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));

        JsonObject greeting = new JsonObject();
        greeting.addProperty("client", "java");
        greeting.addProperty("version", version());
        JsonArray unsupported = new JsonArray();
        unsupported.add("no timestamp"); // a negative one is an IllegalArgumentException
        greeting.add("unsupported", unsupported);
        out.println(JSON.toJson(greeting));

        Records records = new Records(connection);
        try (Members members = new Members(connection);
                Shares shares = new Shares(connection);
                Transactions transactions = new Transactions(connection);
                Administration administration = new Administration(connection)) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                Command command = new Command(JsonParser.parseString(line).getAsJsonObject());
                JsonObject answer = new JsonObject();
                answer.add("id", command.json().get("id"));
                try {
                    answer.add("result", execute(command, records, transactions, members, shares, administration));
                } catch (Exception e) {
                    Throwable cause = causeOf(e);
                    answer.addProperty("error", nameOf(cause));
                    answer.addProperty("message", String.valueOf(cause.getMessage()));
                }
                out.println(JSON.toJson(answer));
            }
        }
    }

    /** What the client's jar says of itself. */
    private static String version() throws IOException {
        Properties properties = new Properties();
        try (InputStream file = Main.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            properties.load(file);
        }
        return properties.getProperty("version");
    }

    private static JsonObject execute(
            Command command,
            Records records,
            Transactions transactions,
            Members members,
            Shares shares,
            Administration administration)
            throws Exception {
        return switch (command.text("op")) {
            case "produce" -> records.produce(command);
            case "produce_keyed" -> records.produceKeyed(command);
            case "fetch" -> records.fetch(command);
            case "transact" -> transactions.transact(command);
            case "join" -> members.join(command);
            case "assignment" -> members.assignment(command);
            case "poll" -> members.poll(command);
            case "commit" -> members.commit(command);
            case "leave" -> members.leave(command);
            case "share" -> shares.share(command);
            case "take" -> shares.take(command);
            case "settle" -> shares.settle(command);
            case "unshare" -> shares.unshare(command);
            case "offsets" -> administration.offsets(command);
            case "committed" -> administration.committed(command);
            case "create_topic" -> administration.createTopic(command);
            case "describe_topic" -> administration.describeTopic(command);
            case "alter_topic" -> administration.alterTopic(command);
            case "add_partitions" -> administration.addPartitions(command);
            case "delete_topic" -> administration.deleteTopic(command);
            case "list_topics" -> administration.listTopics(command);
            case "delete_records" -> administration.deleteRecords(command);
            case "list_groups" -> administration.listGroups(command);
            case "describe_group" -> administration.describeGroup(command);
            case "delete_group" -> administration.deleteGroup(command);
            default -> throw new Failure("UNKNOWN_OP", command.text("op"));
        };
    }

    /** The client wraps what the broker said, and says "timed out" of what it retried until the end. */
    private static Throwable causeOf(Throwable e) {
        boolean wrapped = e instanceof ExecutionException
                || e.getClass() == org.apache.kafka.common.KafkaException.class
                || e instanceof org.apache.kafka.common.errors.TimeoutException && hasName(e.getCause());
        return wrapped && e.getCause() != null ? causeOf(e.getCause()) : e;
    }

    private static boolean hasName(Throwable e) {
        return e != null && Errors.forException(e) != Errors.UNKNOWN_SERVER_ERROR;
    }

    private static String nameOf(Throwable e) {
        if (e instanceof Failure failure) {
            return failure.name;
        }
        if (e instanceof java.util.concurrent.TimeoutException) {
            return Failure.timedOut().name;
        }
        if (e instanceof OffsetOutOfRangeException) { // the consumer has its own, without a code
            return Errors.OFFSET_OUT_OF_RANGE.name();
        }
        if (hasName(e) || e instanceof org.apache.kafka.common.errors.UnknownServerException) {
            return Errors.forException(e).name();
        }
        return e.getClass().getSimpleName();
    }

    private Main() {}
}
