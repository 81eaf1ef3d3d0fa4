"""Segments as Apache Kafka's ``kafka-dump-log`` reads them, and how it complains."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from load.apache_kafka import run_tool

TOOL = "org.apache.kafka.tools.DumpLogSegments"
# How the tool complains, in any of its modes; nothing that is stored here contains one of these.
COMPLAINTS = re.compile(
    r"mismatch|non-consecutive|out of order|isvalid: false|corrupt|invalid|error|exception|found|warn",
    re.IGNORECASE,
)
# With deep iteration the tool takes -1 for the offset before every segment, and so misses what was never meant
# to be in it; of Kafka's own segments it says the same. What matters is checked elsewhere: the first offset of a
# segment is that of its name, and follows the last one of the segment before.
_FALSE_ALARM = re.compile(
    r"^Non-consecutive offsets in \S+/(\d{20})\.log\n  -1 is followed by (\d+)\n", re.MULTILINE
)
_HOLES = re.compile(r"^Non-consecutive offsets in (\S+)\n(?:  -?\d+ is followed by \d+\n)+", re.MULTILINE)
# A JVM on a busy machine, and all that it prints.
_TIMEOUT_S = 300.0


def complain_not(done: subprocess.CompletedProcess[str], *, compacted: frozenset[str] = frozenset()) -> None:
    """Fail if the tool has complained, but for holes in the partitions ``compacted``, by their directories."""
    stderr = _HOLES.sub(
        lambda found: "" if Path(found[1]).parent.name in compacted else found[0], done.stderr
    )
    stderr = _FALSE_ALARM.sub(lambda found: "" if int(found[1]) == int(found[2]) else found[0], stderr)
    complaints = [line for line in (done.stdout + stderr).splitlines() if COMPLAINTS.search(line)]
    assert not complaints, "\n".join(complaints[:20])
    assert (done.returncode, stderr) == (0, "")


def dump_all(data_dir: Path, *, compacted: frozenset[str]) -> int:
    """Have one JVM read every segment of a data directory, record by record; return how many there are."""
    logs = sorted(data_dir.glob("*/*.log"))
    done = run_tool(TOOL, "--deep-iteration", "--files", ",".join(map(str, logs)), timeout_s=_TIMEOUT_S)
    complain_not(done, compacted=compacted)
    read = {line.removeprefix("Dumping ") for line in done.stdout.splitlines() if line.startswith("Dumping ")}
    assert read == {str(path) for path in logs}
    return len(logs)
