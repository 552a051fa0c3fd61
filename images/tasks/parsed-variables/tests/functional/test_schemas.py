"""What json_schema accepts, and what backends see of it."""

import json
import pathlib
import sys
from typing import List, Optional

import pytest
from pydantic import BaseModel, Field

import sglang as sgl

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from typed import one, sent  # noqa: E402


class City(BaseModel):
    name: str = Field(description="für Menschen")
    people: Optional[int] = None


class Trip(BaseModel):
    stops: List[City]


@pytest.mark.parametrize("model", [City, Trip])
def test_a_model_stands_for_its_schema(model):
    text = sent(json_schema=model)
    assert isinstance(text, str)
    assert json.loads(text) == model.model_json_schema()


@pytest.mark.parametrize(
    "schema", [{}, {"type": "object", "properties": {"é": {"enum": ["ü", 1]}}}]
)
def test_a_dict_is_written_as_json(schema):
    text = sent(json_schema=schema)
    assert json.loads(text) == schema
    assert "\\u" not in text


def test_a_model_is_written_without_escapes():
    assert "für Menschen" in sent(json_schema=City)


def test_a_dict_counts_as_it_was():
    schema = {"type": "object"}
    expr = sgl.gen("x", json_schema=schema)
    schema["type"] = "array"
    assert json.loads(expr.sampling_params.json_schema) == {"type": "object"}


@pytest.mark.parametrize("schema", ['{"type":  "object"}', "{", ""])
def test_a_string_is_unchanged(schema):
    assert sent(json_schema=schema) == schema
    with pytest.raises(sgl.VariableParseError):
        one("x", json_schema=schema).parsed("x")


@pytest.mark.parametrize(
    "schema, name",
    [
        (5, "int"),
        (True, "bool"),
        ([], "list"),
        (b"{}", "bytes"),
        (int, "type"),
        (dict, "type"),
        (City(name="x"), "City"),
    ],
    ids=["number", "bool", "list", "bytes", "int", "dict", "instance"],
)
def test_anything_else_is_refused(schema, name):
    with pytest.raises(TypeError) as caught:
        sgl.gen("x", json_schema=schema)
    assert str(caught.value) == (
        "json_schema must be a string, a dict or a pydantic model class, "
        f"got {name}"
    )


def test_the_error_is_exported():
    from sglang.lang.api import VariableParseError

    assert sgl.VariableParseError is VariableParseError
    assert issubclass(VariableParseError, ValueError)
    assert "VariableParseError" in sgl.__all__
