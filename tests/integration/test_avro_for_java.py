"""Avro for Java, which most producers and consumers use, makes the same of schemas and values."""

from __future__ import annotations

import base64
import importlib.util
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from stele.schemas import avro
from stele.schemas.definitions import InvalidSchema, InvalidValue

from app.registry.compatibility.avro import incompatibilities
from tests.support.avro_examples import changed, schemas, schemas_with_values

SOURCE = """
import java.io.*;
import java.util.Base64;
import org.apache.avro.*;
import org.apache.avro.generic.*;
import org.apache.avro.io.*;

public class Peer {
  static Schema parse(String text) {
    return new Schema.Parser(NameValidator.STRICT_VALIDATOR).parse(text);
  }

  public static void main(String[] args) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
    PrintStream out = new PrintStream(System.out, true, "UTF-8");
    for (String line; (line = in.readLine()) != null; ) {
      String[] parts = line.split("\\t", -1);
      String canonical = "", compatible = "", written = "", error = "";
      try {
        Schema writer = parse(parts[0]), reader = parse(parts[1]);
        canonical = writer.toString();
        compatible = SchemaCompatibility.checkReaderWriterCompatibility(reader, writer).getType().toString();
        BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(Base64.getDecoder().decode(parts[2]), null);
        Object value = new GenericDatumReader<Object>(writer, reader).read(null, decoder);
        if (!decoder.isEnd()) throw new IOException("bytes follow the value");
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(bytes, null);
        new GenericDatumWriter<Object>(reader).write(value, encoder);
        encoder.flush();
        written = Base64.getEncoder().encodeToString(bytes.toByteArray());
      } catch (Exception e) {
        error = e.toString().replaceAll("\\\\s", " ");
      }
      out.println(String.join("\\t", canonical, compatible, written, error));
    }
  }
}
"""
# It has forgotten a record without a namespace while it parses types within it that have one.
UNDEFINED = "Undefined schema"


class Answer(NamedTuple):
    canonical: str
    compatible: str
    written: bytes
    error: str


class Java:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, writer: str, reader: str, data: bytes = b"") -> Answer:
        """Return what Java parses, compares, and writes of ``data`` with the reader's schema."""
        assert self._process.stdin
        assert self._process.stdout
        print(writer, reader, base64.b64encode(data).decode(), sep="\t", file=self._process.stdin, flush=True)
        canonical, compatible, written, error = self._process.stdout.readline().rstrip("\n").split("\t")
        return Answer(canonical, compatible, base64.b64decode(written), error)


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or pyspark.origin is None or shutil.which("javac") is None:
        why = "Avro for Java comes with the extra `spark`, and its program needs a JDK, 17 or newer"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    source = tmp_path_factory.mktemp("avro") / "Peer.java"
    source.write_text(SOURCE)
    classpath = str(Path(pyspark.origin).parent / "jars" / "*")
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", classpath, str(source)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        yield Java(process)
        assert process.stdin
        process.stdin.close()


@given(schemas())
def test_it_prints_the_same_canonical_text(java: Java, schema: Any) -> None:
    text = json.dumps(schema)
    answer = java.ask(text, text)
    try:
        parsed = avro.parse(text)
    except InvalidSchema:
        assert answer.canonical == ""
    else:
        assert answer.canonical == parsed.canonical or UNDEFINED in answer.error


@pytest.mark.parametrize(
    "schema",
    [
        {
            "type": "record",
            "name": "a.b.R",
            "doc": "d",
            "fields": [],
            "z": 1,
            "a": {"b": []},
            "aliases": ["S", "c.T"],
        },
        {
            "type": "error",
            "name": "E",
            "namespace": "",
            "fields": [{"name": "f", "type": "int", "order": "IGNORE"}],
        },
        {
            "type": "record",
            "name": "R",
            "fields": [
                {
                    "type": ["null", "R"],
                    "default": None,
                    "doc": "\u00e9\n",
                    "name": "a",
                    "x": True,
                    "aliases": ["b"],
                },
                {"type": {"type": "string", "avro.java.string": "String"}, "default": "", "name": "c"},
            ],
        },
        {"type": "enum", "default": "A", "symbols": ["A", "B"], "name": "n.enum", "aliases": ["enum"]},
        {
            "type": "array",
            "items": {"type": "map", "values": {"type": "int", "logicalType": "date"}},
            "default": [],
        },
        {"type": "fixed", "size": 4, "logicalType": "decimal", "precision": 100, "name": "F"},
    ],
)
def test_it_prints_attributes_in_the_same_order(java: Java, schema: Any) -> None:
    text = json.dumps(schema)
    answer = java.ask(text, '"int"')
    assert avro.parse(text).canonical == answer.canonical, answer.error


@given(schemas_with_values())
def test_it_reads_and_writes_the_same_values(java: Java, case: tuple[avro.AvroSchema, Any]) -> None:
    schema, value = case
    # Serializers of registries write them without the length that Java's has.
    assume(schema.root.kind != "bytes")
    data = schema.encode(value)
    answer = java.ask(schema.canonical, schema.canonical, data)
    # Java's maps have no order.
    if UNDEFINED not in answer.error:
        assert answer.error == ""
        assert schema.decode(answer.written) == schema.decode(data)


@given(schemas_with_values(), st.data())
def test_it_reads_them_as_another_schema_in_the_same_way(
    java: Java, case: tuple[avro.AvroSchema, Any], data: st.DataObject
) -> None:
    writer, value = case
    reader = changed(writer, data)
    assume("bytes" not in (writer.root.kind, reader.root.kind))
    encoded = writer.encode(value)
    answer = java.ask(writer.canonical, reader.canonical, encoded)
    if UNDEFINED in answer.error:
        return
    reasons = incompatibilities(reader, writer)
    assert answer.compatible == ("INCOMPATIBLE" if reasons else "COMPATIBLE"), reasons
    refused = ""
    try:
        read = writer.decode(encoded, reader)
    except InvalidValue as error:
        refused = error.reason
    else:
        assert reader.decode(answer.written) == reader.decode(reader.encode(read))
    # Java puts another character in the place of bytes that are none.
    assert bool(refused) == bool(answer.error) or "UTF-8" in refused, answer.error
