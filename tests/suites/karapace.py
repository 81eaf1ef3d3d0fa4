"""The suite of Karapace, a registry with the API of Confluent's: its tests of an outside registry."""

from __future__ import annotations

from pathlib import Path

from .results import Outcome
from .running import Run, Suite, run_pytest
from .sources import Folder, replace_text

_REQUIREMENTS = (
    *("accept-types", "aiohttp", "aiokafka<0.13", "async_lru", "avro", "cachetools", "confluent-kafka"),
    *(
        "cryptography",
        "dependency-injector",
        "fastapi",
        "filelock",
        "hypothesis",
        "jsonschema",
        "lz4",
        "networkx",
    ),
    *("opentelemetry-api", "opentelemetry-exporter-otlp", "opentelemetry-sdk", "orjson", "prometheus-client"),
    *("prometheus-fastapi-instrumentator", "protobuf", "psutil", "pydantic", "pydantic-settings", "pyjwt"),
    *("pytest-aiohttp", "pytest-xdist", "python-dateutil", "python-snappy", "requests", "tenacity"),
    *("typing-extensions", "ujson", "watchfiles", "yarl", "zstandard"),
)
_FILES = (
    *("schema", "schema_avro_references", "schema_compatibility", "schema_protobuf", "schema_registry_mode"),
    *("jsonschema", "dependencies_compatibility_protobuf"),
)
# Its tests share the registry if it is an outside one, and most count on an empty one.
_SHARED = '        yield RegistryDescription(endpoint, "_schemas")\n'
_EMPTY = f"""        import os
        import requests
        topic = os.environ["BROKER_HTTP_URL"] + "/v1/topics/_schemas"
        requests.delete(topic)
        configs = {{"cleanup.policy": "compact"}}
        requests.put(topic, json={{"partitions": 1, "configs": configs}}).raise_for_status()
{_SHARED}"""
# A part of it in Go that only its own server calls.
_LIBRARY = """if not spec:
    raise FileNotFoundError("Unable to find protopace shared library")

lib_file = spec.origin
lib = ctypes.CDLL(lib_file)
"""
_NO_LIBRARY = "from unittest.mock import MagicMock\n\nlib = MagicMock()\n"
# Of Karapace's own: whether the registry that answers is the one that writes.
_IS_PRIMARY = '"master_available" in reply and reply["master_available"] is True'
# The words in which it says why a schema is refused.
_WORDS = (
    'assert res.json_result.get("message", None) == testdata.expected_msg',
    'assert res.json().get("messages") == test_case.expected_incompatibilities',
)


def _karapace(of: Run) -> dict[str, Outcome]:
    tests = of.sources / "tests"
    integration = tests / "integration"
    (of.sources / "src" / "karapace" / "version.py").write_text('__version__ = "0"\n')
    protopace = of.sources / "src" / "karapace" / "core" / "protobuf" / "protopace" / "protopace.py"
    for path, old, new in (
        (protopace, _LIBRARY, _NO_LIBRARY),
        (tests / "utils.py", _IS_PRIMARY, "True"),
        (integration / "conftest.py", _SHARED, _EMPTY),
        *((path, words, "pass") for path in sorted(integration.glob("test_schema_*.py")) for words in _WORDS),
    ):
        replace_text([path], old, new)
    environment = {"BROKER_HTTP_URL": of.broker.http_url, "PYTHONPATH": f"{of.sources / 'src'}:{of.sources}"}
    options = [
        "--override-ini=addopts=--import-mode=importlib",
        f"--registry-url={of.broker.registry_url}",
        f"--kafka-bootstrap-servers={of.broker.kafka_bootstrap}",
    ]
    files = [str(Path("tests", "integration", f"test_{name}.py")) for name in _FILES]
    return run_pytest(of, list(_REQUIREMENTS), [*options, *files], environment)


_TYPES_OF_PYDANTIC = "compares what pydantic says against the body, as a list in place of the message"
_CANONICAL = "expects the text that was sent; Confluent and Stele show Avro schemas in their canonical order"
_ALWAYS_VERBOSE = (
    "expects reasons of an incompatibility that were not asked for with verbose, in the words of a library"
)
_WORDS_OF_AVRO = "compares the words of a library in the refusal of a schema"
_CODE_OF_TYPE = "expects the code 422 for an unknown type of schema, which is 42201 at Confluent's and here"
_INCLUDE_SUBJECTS = "uses the parameter includeSubjects, which only Karapace has"
_FIELD_NAME = "expects a new schema with a dash in the name of a field, which Avro does not allow"
_EVERYTHING = "takes a property that may be anything, added to an open object, for an incompatible change"
_NOTHING = "takes the schema false, by which nothing was written, for one that {} cannot read"
_FREE_OPTIONS = "uses options of Protobuf that no import declares, which protoc refuses"
_ORDER = "expects subjects in the order in which they were registered; they are sorted by name"
_KNOWN = {
    "schema": {
        "test_compatibility_endpoint": _ALWAYS_VERBOSE,
        "test_config": 'expects {"compatibility"} of what was deleted; Confluent answers compatibilityLevel',
        "test_get_schema_with_subjects": _INCLUDE_SUBJECTS,
        "test_union_comparing_to_other_types": _INCLUDE_SUBJECTS,
        "test_invalid_namespace": _WORDS_OF_AVRO,
        "test_invalid_schema_should_provide_good_error_messages": _WORDS_OF_AVRO,
        "test_malformed_kafka_message": "expects a text that it wrote to the topic itself to be printed anew",
        "test_record_schema_subject_compatibility": _CANONICAL,
        "test_schema_same_subject_unnamed": _CANONICAL,
        "test_regression_compatibility_should_not_give_internal_server_error_on_invalid_schema_type": _CODE_OF_TYPE,
        "test_regression_invalid_schema_type_should_not_give_internal_server_error": _CODE_OF_TYPE,
        "test_schema_body_validation": _TYPES_OF_PYDANTIC,
        "test_schema_missing_body": _TYPES_OF_PYDANTIC,
        "test_schema_subject_post_invalid": _TYPES_OF_PYDANTIC,
        "test_schema_non_compliant_name_in_existing": _FIELD_NAME,
        "test_schema_non_compliant_namespace_in_existing": _FIELD_NAME,
        "test_schema_versions_multiple_subjects_same_schema[testcase0]": _ORDER,
        "test_schema_versions_multiple_subjects_same_schema[testcase1]": _ORDER,
    },
    "schema_avro_references": {
        "test_avro_incompatible_name_references": _WORDS_OF_AVRO,
        "test_avro_references_compatibility": _ALWAYS_VERBOSE,
        "test_basic_avro_references": _CANONICAL,
    },
    "schema_compatibility": {
        f"test_schema_compatibility[test_case{number}]": (
            "expects 404 for the latest version of a subject without one; at Confluent's anything is compatible with it"
        )
        for number in (6, 7)
    },
    "schema_registry_mode": {
        "test_subject_mode": "expects the global mode for a subject without one of its own, which is 40409 at Confluent's"
    },
    "schema_protobuf": {
        **{
            f"{test}[registry_cluster{number}]": _FREE_OPTIONS
            for test in ("test_protobuf_schema_references", "test_protobuf_schema_verifier")
            for number in (0, 1)
        },
        **{
            f"test_references[{rules}-{metadata}-registry_cluster{number}-With reference to nested message]": (
                "gives the reference another name than the import, by which both Confluent and protoc find it"
            )
            for rules in ("None", "rule_set1")
            for metadata in ("None", "metadata1")
            for number in (0, 1)
        },
        "test_registering_normalized_schema": "starts a Karapace of its own with other settings",
    },
    "dependencies_compatibility_protobuf": {
        "test_protobuf_schema_references_rejected_values": _TYPES_OF_PYDANTIC
    },
    "jsonschema": {
        "test_schemaregistry_boolean_schemas_are_backward_compatible": (
            "takes the schema false, which accepts nothing, for one that reads what true accepts"
        ),
        "test_schemaregistry_true_schema_is_compatible_with_object": (
            "takes the schema true, which accepts everything, for one that reads no numbers, strings and arrays"
        ),
        "test_schemaregistry_object_properties": _EVERYTHING,
        "test_schemaregistry_property_names": f"{_EVERYTHING}, where a pattern limits the names of properties",
        "test_schemaregistry_schemaregistry_extra_field_with_closed_model_is_incompatible": _NOTHING.format(
            "an object with a property"
        ),
        "test_schemaregistry_true_and_false_schemas": _NOTHING.format("an object with required properties"),
    },
}


def _name(file: str, test: str) -> str:
    """Return the name of a test in the report: all but one run in a loop, which is a parameter."""
    base, _, rest = test.partition("[")
    parameters = f"[pyloop-{rest}" if rest else "[pyloop]"
    is_without = test == "test_registering_normalized_schema"
    return f"tests.integration.test_{file}::{base}{'' if is_without else parameters}"


KARAPACE = Suite(
    name="karapace",
    source=Folder(),
    test=_karapace,
    limit_s=1200,
    known={_name(file, test): why for file, tests in _KNOWN.items() for test, why in tests.items()},
)
