package stele.conformance;

/** An error of the driver itself, with the name the tests are told. */
final class Failure extends RuntimeException {
    final String name;

    Failure(String name, String message) {
        super(message);
        this.name = name;
    }

    static Failure timedOut() {
        return new Failure("TIMED_OUT", "the time given was over");
    }
}
