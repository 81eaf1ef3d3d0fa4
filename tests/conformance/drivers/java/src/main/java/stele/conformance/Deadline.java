package stele.conformance;

import java.time.Duration;

/** When the time of a command is over. */
record Deadline(long nanos) {
    static Deadline after(Duration duration) {
        return new Deadline(System.nanoTime() + duration.toNanos());
    }

    Duration left() {
        return Duration.ofNanos(Math.max(0, nanos - System.nanoTime()));
    }

    /** At most this long, and not beyond the deadline. */
    Duration left(Duration limit) {
        Duration left = left();
        return left.compareTo(limit) < 0 ? left : limit;
    }

    boolean over() {
        return left().isZero();
    }
}
