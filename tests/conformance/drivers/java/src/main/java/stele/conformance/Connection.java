package stele.conformance;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.clients.CommonClientConfigs;
import org.apache.kafka.common.config.SaslConfigs;
import org.apache.kafka.common.config.SslConfigs;

/** The properties of every client: the broker, and how to log in. */
record Connection(Map<String, Object> properties) {
    private static final String PACKAGE = "org.apache.kafka.common.security.";

    /** Of the arguments BOOTSTRAP [LOGIN]. */
    static Connection of(String[] arguments) throws IOException {
        Map<String, Object> properties = new LinkedHashMap<>();
        properties.put(CommonClientConfigs.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        if (arguments.length == 2) {
            logIn(properties, JsonParser.parseString(Files.readString(Path.of(arguments[1]))).getAsJsonObject());
        }
        return new Connection(properties);
    }

    private static void logIn(Map<String, Object> properties, JsonObject login) {
        String mechanism = login.get("mechanism").getAsString();
        properties.put(CommonClientConfigs.SECURITY_PROTOCOL_CONFIG, "SASL_SSL");
        properties.put(SslConfigs.SSL_TRUSTSTORE_TYPE_CONFIG, "PEM");
        properties.put(SslConfigs.SSL_TRUSTSTORE_LOCATION_CONFIG, login.get("ca_file").getAsString());
        properties.put(SaslConfigs.SASL_MECHANISM, mechanism);
        if (mechanism.equals("OAUTHBEARER")) {
            String url = Path.of(login.get("token_file").getAsString()).toUri().toString();
            // The client reads tokens from places that are allowed only.
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", url);
            properties.put(SaslConfigs.SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL, url);
            properties.put(
                    SaslConfigs.SASL_LOGIN_CALLBACK_HANDLER_CLASS,
                    PACKAGE + "oauthbearer.OAuthBearerLoginCallbackHandler");
            properties.put(
                    SaslConfigs.SASL_JAAS_CONFIG, PACKAGE + "oauthbearer.OAuthBearerLoginModule required;");
            return;
        }
        String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        String options = " required username=\"%s\" password=\"%s\";"
                .formatted(login.get("user").getAsString(), login.get("password").getAsString());
        properties.put(SaslConfigs.SASL_JAAS_CONFIG, PACKAGE + module + options);
    }
}
