"""A parameter takes what the OpenAPI document says about it, and nothing else."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.requests import Request

from app.api import application
from app.api.errors import HttpError
from app.api.openapi.operations import OPERATIONS
from app.api.parameters import IN_PATHS, Choice, Flag, Number, NumberInPath, Parameter
from app.api.schemas import Components
from app.errors import InvalidRequest

# The application has all routes.
assert application.create_application
DECLARED = {
    f"{name} {parameter.name}": parameter
    for name, operation in OPERATIONS.items()
    for parameter in operation.parameters
}


def declared(kind: type[Parameter]) -> Any:
    chosen = {name: parameter for name, parameter in DECLARED.items() if isinstance(parameter, kind)}
    assert chosen
    return pytest.mark.parametrize("parameter", chosen.values(), ids=chosen.keys())


def request(**query: object) -> Request:
    return Request({"type": "http", "query_string": urlencode(query).encode(), "headers": []})


def schema_of(parameter: Parameter) -> dict[str, Any]:
    components = Components()
    schema = parameter.document(components)["schema"]
    return components.schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


@declared(Number)
def test_a_number_is_read_within_the_bounds_of_the_document(parameter: Number) -> None:
    schema = schema_of(parameter)
    for number in (schema["minimum"], schema["maximum"]):
        assert parameter.read(request(**{parameter.name: number})) == number
    for text in (schema["minimum"] - 1, 2**63, "", "1.0", "one"):
        with pytest.raises(InvalidRequest, match=f"^{parameter.name} is .* a whole number from"):
            parameter.read(request(**{parameter.name: text}))
    assert parameter.read(request(), 7) == 7
    if "default" in schema:
        assert parameter.read(request()) == schema["default"]


def test_a_bound_of_one_request_takes_the_place_of_the_declared_one() -> None:
    number = Number("limit", "", 1, maximum=1000)
    assert number.read(request(limit=1000)) == 1000
    with pytest.raises(InvalidRequest, match=r"from 0 to 10$"):
        number.read(request(limit=11), maximum=10)


@declared(Choice)
def test_a_choice_is_one_of_the_enumeration(parameter: Choice[object]) -> None:
    schema = schema_of(parameter)
    for value in schema["enum"]:
        assert parameter.read(request(**{parameter.name: value})) == value
    for text in ("", "other", schema["enum"][0].upper()):
        with pytest.raises(InvalidRequest, match=f"^{parameter.name} is .*{schema['enum'][-1]}"):
            parameter.read(request(**{parameter.name: text}))
    assert parameter.read(request()) == schema.get("default")


@declared(Flag)
def test_a_flag_is_true_or_false(parameter: Flag) -> None:
    assert parameter.read(request(**{parameter.name: "true"}))
    assert not parameter.read(request(**{parameter.name: "false"}))
    assert parameter.read(request()) == schema_of(parameter)["default"]
    for text in ("", "yes", "1"):
        with pytest.raises(InvalidRequest, match=f"^{parameter.name} is .* true or false"):
            parameter.read(request(**{parameter.name: text}))


@pytest.mark.parametrize("name", [name for name, one in IN_PATHS.items() if isinstance(one, NumberInPath)])
def test_a_number_in_a_path_that_is_out_of_bounds_is_not_found(name: str) -> None:
    parameter = IN_PATHS[name]
    assert isinstance(parameter, NumberInPath)

    def read(value: object) -> int:
        return parameter.number(Request({"type": "http", "path_params": {name: value}, "headers": []}))

    schema = schema_of(parameter)
    assert [read(schema[bound]) for bound in ("minimum", "maximum")] == [schema["minimum"], schema["maximum"]]
    for text in ("-1", str(schema["maximum"] + 1), "", "one"):
        with pytest.raises(HttpError) as refused:
            read(text)
        assert refused.value.problem["status"] == 404
