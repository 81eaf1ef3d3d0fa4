"""Run the test suites of Kafka clients against a broker: ``make suites``.

Reading order: ``table`` (the suites, how each is got and run, and what is known to differ), ``sources``
(bring a suite into a directory of its own), ``results`` (read and judge what a suite reports), ``__main__``
(run them and print a summary). ``page`` writes the differences into docs/conformance.md.
"""
