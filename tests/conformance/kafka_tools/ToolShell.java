import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools one after the other in one process, because the start of a JVM costs more than most
 * calls.
 *
 * <p>One JSON object per line: {@code {"class": "…", "arguments": ["…"], "input": "…"}} on standard input, and for each
 * {@code {"code": 0, "out": "…", "err": "…"}} on standard output. A call sees what it would see in a process of its
 * own: its standard streams, an exit that ends it, its shutdown hooks.
 */
public final class ToolShell {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long HOOKS_MS = 10_000;
    private static final long CLOSE_MS = 10_000;

    /** Unwinds a call after its exit, so that its finally blocks close what a process would have closed by ending. */
    private static final class Ended extends Error {
        Ended() {
            super("the tool has ended", null, false, false);
        }
    }

    /** One run of a tool. Nothing that is written after its exit counts. */
    private static final class Call {
        private final ByteArrayOutputStream out = new ByteArrayOutputStream();
        private final ByteArrayOutputStream err = new ByteArrayOutputStream();
        private final List<Runnable> hooks = new ArrayList<>();
        private final ObjectNode answer = JSON.createObjectNode();
        private boolean hasEnded;

        void run(JsonNode command) throws Exception {
            List<String> arguments = new ArrayList<>();
            command.get("arguments").forEach(each -> arguments.add(each.asText()));
            byte[] input = command.path("input").asText("").getBytes(StandardCharsets.UTF_8);
            System.setIn(new ByteArrayInputStream(input));
            System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
            Exit.setExitProcedure((code, message) -> exit(code, message));
            Exit.setHaltProcedure((code, message) -> exit(code, message));
            Exit.setShutdownHookAdder((name, hook) -> addHook(hook));
            Thread main = new Thread(() -> main(command.get("class").asText(), arguments), "main");
            main.setDaemon(true);
            main.start();
            synchronized (this) {
                while (!hasEnded) {
                    wait();
                }
            }
            System.setOut(new PrintStream(OutputStream.nullOutputStream()));
            System.setErr(new PrintStream(OutputStream.nullOutputStream()));
            main.join(CLOSE_MS);
        }

        private void main(String tool, List<String> arguments) {
            int code = 0;
            try {
                Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments.toArray(new String[0]));
            } catch (InvocationTargetException e) {
                if (e.getCause() instanceof Ended) {
                    return;
                }
                System.err.print("Exception in thread \"main\" ");
                e.getCause().printStackTrace();
                code = 1;
            } catch (ReflectiveOperationException e) {
                e.printStackTrace();
                code = 1;
            }
            end(code);
        }

        private synchronized void addHook(Runnable hook) {
            hooks.add(hook);
        }

        private void exit(int code, String message) {
            if (message != null) {
                System.err.println(message);
            }
            end(code);
            throw new Ended();
        }

        private void end(int code) {
            List<Runnable> due;
            synchronized (this) {
                due = new ArrayList<>(hooks);
                hooks.clear();
            }
            due.addAll(takeRuntimeHooks());
            for (Runnable hook : due) {
                Thread thread = new Thread(hook, "hook");
                thread.setDaemon(true);
                thread.start();
                try {
                    thread.join(HOOKS_MS);
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
            }
            synchronized (this) {
                if (hasEnded) {
                    return;
                }
                answer.put("code", code);
                answer.put("out", out.toString(StandardCharsets.UTF_8));
                answer.put("err", err.toString(StandardCharsets.UTF_8));
                hasEnded = true;
                notifyAll();
            }
        }
    }

    /** Hooks that a tool has given to the runtime itself; nothing else in this process has any. */
    @SuppressWarnings("unchecked")
    private static List<Runnable> takeRuntimeHooks() {
        try {
            Field field = Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks");
            field.setAccessible(true);
            Map<Thread, Thread> hooks = (Map<Thread, Thread>) field.get(null);
            List<Runnable> taken = new ArrayList<>(hooks.keySet());
            hooks.clear();
            return taken;
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException("the JVM needs --add-opens java.base/java.lang=ALL-UNNAMED", e);
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            Call call = new Call();
            call.run(JSON.readTree(line));
            answers.println(JSON.writeValueAsString(call.answer));
            answers.flush();
        }
        // Threads that a tool has left behind keep nobody waiting.
        Runtime.getRuntime().halt(0);
    }

    private ToolShell() {}
}
