package stele.conformance.flink;

import java.nio.charset.StandardCharsets;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;

/**
 * Runs the statements of standard input, which a line of dashes divides, and prints the rows of queries, or with the
 * argument "streaming" their changes.
 */
public final class Sql {
    public static void main(String[] args) throws Exception {
        Configuration configuration = new Configuration();
        configuration.setString("parallelism.default", "1");
        EnvironmentSettings.Builder settings = EnvironmentSettings.newInstance().withConfiguration(configuration);
        TableEnvironment tables =
                TableEnvironment.create(
                        (args.length > 0 && args[0].equals("streaming")
                                        ? settings.inStreamingMode()
                                        : settings.inBatchMode())
                                .build());
        String input = new String(System.in.readAllBytes(), StandardCharsets.UTF_8);
        for (String statement : input.split("\n---\n")) {
            TableResult result = tables.executeSql(statement);
            if (statement.stripLeading().startsWith("SELECT")) {
                result.collect().forEachRemaining(row -> System.out.println("row " + row));
            } else {
                result.await();
            }
        }
    }

    private Sql() {}
}
