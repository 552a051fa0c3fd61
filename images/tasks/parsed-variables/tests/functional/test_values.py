"""`parsed`: from text to value, and what can't be parsed."""

import pathlib
import sys
from typing import Literal, Optional

import pytest
from pydantic import BaseModel, field_validator

import sglang as sgl

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from typed import Says, one  # noqa: E402


class City(BaseModel):
    name: str
    people: Optional[int] = None


class Picky(BaseModel):
    size: float = 0.0

    @field_validator("size")
    @classmethod
    def small(cls, value):
        if value > 10:
            raise ValueError("too big")
        if value < 0:
            raise KeyError("not even a ValueError")
        return value


MODES = [
    {},
    {"stream": True},
    {"use_thread": False},
]
modes = pytest.mark.parametrize("mode", MODES, ids=["plain", "stream", "no thread"])


@modes
def test_a_model(mode):
    state = one(' {"name": "Ålesund", "people": 3}\n', json_schema=City, **mode)
    assert state.parsed("x") == City(name="Ålesund", people=3)
    assert type(state.parsed("x")) is City
    assert state["x"] == ' {"name": "Ålesund", "people": 3}\n'


@modes
@pytest.mark.parametrize("schema", ["{}", {}], ids=["string", "dict"])
@pytest.mark.parametrize(
    "text, value",
    [
        ('{"a": [1, 2.5, null, true]}', {"a": [1, 2.5, None, True]}),
        ("\n [] \t", []),
        ('"x"', "x"),
        ("-3", -3),
        ("null", None),
        ('{"a": 1, "a": 2}', {"a": 2}),
        ('"NaN"', "NaN"),
    ],
    ids=["object", "array", "string", "number", "null", "twice", "a word in a string"],
)
def test_json(text, value, schema, mode):
    assert one(text, json_schema=schema, **mode).parsed("x") == value


@pytest.mark.parametrize(
    "dtype, text, value",
    [
        (int, "12", 12),
        ("int", "-7 \n", -7),
        (int, " +0012", 12),
        (float, "1.5", 1.5),
        ("float", ".5", 0.5),
        (float, "-3", -3.0),
        (bool, "True", True),
        ("bool", " False\n", False),
        (str, '"a b"', "a b"),
        ("str", '"a\\"\\n\\u00e9"', 'a"\né'),
        ("string", '""', ""),
    ],
)
def test_dtypes(dtype, text, value):
    found = one(text, dtype=dtype).parsed("x")
    assert found == value and type(found) is type(value)


def test_gen_int_and_gen_string():
    def body(s):
        s += sgl.gen_int("n") + sgl.gen_string("t")

    state = sgl.function(body).run(backend=Says("5", '"five"'))
    assert (state.parsed("n"), state.parsed("t")) == (5, "five")


def test_a_schema_counts_before_a_dtype():
    assert one('{"name": "x"}', dtype=int, json_schema=City).parsed("x").name == "x"
    assert one("[1]", dtype=int, json_schema={}).parsed("x") == [1]


BAD = [
    ("model", {"json_schema": City}, "City", ["", "x", "{}", '{"name": 1}', '{"name": "x"} y', "[]"]),
    ("validator", {"json_schema": Picky}, "Picky", ['{"size": 11}', '{"size": -1}', '{"size": NaN}', '{"size": -Infinity}']),
    ("json", {"json_schema": {}}, "JSON", ["", "{'a': 1}", "NaN", "[Infinity]", "-Infinity", "{} {}", "1_0", "True"]),
    ("int", {"dtype": int}, "int", ["", "1.0", "1_000", "٣", "0x1", "- 1", "1 2", "nan", "--1"]),
    ("float", {"dtype": "float"}, "float", ["", "1.", "1e5", "nan", "inf", "1_0.0", "٣.٣", "1,5"]),
    ("bool", {"dtype": bool}, "bool", ["", "true", "TRUE", "1", "True False", '"True"']),
    ("str", {"dtype": str}, "str", ["", "a", "'a'", "1", "null", '"a', '"a" "b"', '"a\nb"']),
]
bad = [
    pytest.param(options, name, text, id=f"{kind} {index}")
    for kind, options, name, texts in BAD
    for index, text in enumerate(texts)
]


@pytest.mark.parametrize("options, name, text", bad)
def test_texts_that_can_not_be_parsed(options, name, text):
    state = one(text, **options)
    assert state["x"] == text
    with pytest.raises(sgl.VariableParseError) as caught:
        state.parsed("x")
    error = caught.value
    assert (error.name, error.text) == ("x", text)
    assert str(error).startswith(f"variable 'x' can't be parsed as {name}: ")
    assert isinstance(error.__cause__, Exception)


def test_strict_models_stay_strict():
    class Strict(BaseModel):
        model_config = {"strict": True, "extra": "forbid"}
        kind: Literal["a"]

    assert one('{"kind": "a"}', json_schema=Strict).parsed("x").kind == "a"
    for text in ('{"kind": "b"}', '{"kind": "a", "more": 1}'):
        with pytest.raises(sgl.VariableParseError):
            one(text, json_schema=Strict).parsed("x")


def test_several_texts_are_a_list():
    state = one(['{"name": "a"}', ' {"name": "b"}'], n=2, json_schema=City)
    assert state.parsed("x") == [City(name="a"), City(name="b")]
    assert one(["1", "2 "], n=2, dtype=int).parsed("x") == [1, 2]


def test_a_bad_text_in_a_list_is_named():
    state = one(["1", "two ", "x"], n=3, dtype=int)
    with pytest.raises(sgl.VariableParseError) as caught:
        state.parsed("x")
    assert str(caught.value).startswith("variable 'x'[1] can't be parsed as int: ")
    assert (caught.value.name, caught.value.text) == ("x", "two ")


@modes
def test_variables_without_a_type(mode):
    state = one("5", **mode)
    with pytest.raises(ValueError) as caught:
        state.parsed("x")
    assert str(caught.value) == "variable 'x' was generated without json_schema or dtype"
    assert not isinstance(caught.value, sgl.VariableParseError)


@modes
def test_unknown_variables(mode):
    with pytest.raises(KeyError):
        one("5", dtype=int, **mode).parsed("y")


def test_variables_that_the_backend_did_not_generate():
    state = one(RuntimeError("down"), dtype=int)
    state.stream_executor.worker.join(10)
    with pytest.raises(KeyError):
        state.parsed("x")
