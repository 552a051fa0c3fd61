"""Schemas that a generation may be given, and how its text becomes a value."""

import json
import re
from typing import Any, Callable, NamedTuple, Optional, Tuple

from pydantic import BaseModel

from sglang.lang.ir import REGEX_FLOAT, REGEX_INT, SglGen


class VariableParseError(ValueError):
    def __init__(self, place: str, type_name: str, name: str, text: Any, cause: Exception):
        super().__init__(f"variable {place} can't be parsed as {type_name}: {cause}")
        self.name = name
        self.text = text


class VariableType(NamedTuple):
    name: str
    parse: Callable[[str], Any]


def _refuse_constant(word: str):
    raise ValueError(f"{word} is not JSON")


def parse_json(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse_constant)


def _number(pattern: str, make: Callable[[str], Any]) -> Callable[[str], Any]:
    # \d and [0-9] differ: the expressions use the latter
    expression = re.compile(pattern)

    def parse(text: str) -> Any:
        if expression.fullmatch(text) is None:
            raise ValueError(f"{text!r} is not a number")
        return make(text)

    return parse


def _parse_bool(text: str) -> bool:
    if text not in ("True", "False"):
        raise ValueError(f"{text!r} is neither True nor False")
    return text == "True"


def _parse_str(text: str) -> str:
    value = parse_json(text)
    if not isinstance(value, str):
        raise ValueError(f"{text!r} is not a string in double quotes")
    return value


INT = VariableType("int", _number(REGEX_INT, int))
FLOAT = VariableType("float", _number(REGEX_FLOAT, float))
BOOL = VariableType("bool", _parse_bool)
STR = VariableType("str", _parse_str)
JSON = VariableType("JSON", parse_json)

BY_DTYPE = [
    ((int, "int"), INT),
    ((float, "float"), FLOAT),
    ((bool, "bool"), BOOL),
    ((str, "str", "string"), STR),
]


def model_type(model: type) -> VariableType:
    def parse(text: str) -> Any:
        parse_json(text)  # pydantic accepts NaN as well
        return model.model_validate_json(text)

    return VariableType(model.__name__, parse)


def schema_and_type(json_schema: Any) -> Tuple[Optional[str], Optional[VariableType]]:
    """What the backend is given, and how the text is read."""
    if json_schema is None:
        return None, None
    if isinstance(json_schema, str):
        return json_schema, JSON
    if isinstance(json_schema, dict):
        return json.dumps(json_schema, ensure_ascii=False), JSON
    if isinstance(json_schema, type) and issubclass(json_schema, BaseModel):
        schema = json_schema.model_json_schema()
        return json.dumps(schema, ensure_ascii=False), model_type(json_schema)
    raise TypeError(
        "json_schema must be a string, a dict or a pydantic model class, "
        f"got {type(json_schema).__name__}"
    )


def type_of(expr: Any) -> Optional[VariableType]:
    """The type of what an expression generates."""
    if not isinstance(expr, SglGen):
        return None
    if expr.variable_type is not None:
        return expr.variable_type
    for spellings, found in BY_DTYPE:
        if expr.sampling_params.dtype in spellings:
            return found
    return JSON if expr.sampling_params.json_schema is not None else None


def parse_variable(name: str, value: Any, variable_type: Optional[VariableType]) -> Any:
    if variable_type is None:
        raise ValueError(f"variable {name!r} was generated without json_schema or dtype")

    def parse(place: str, value: Any) -> Any:
        if isinstance(value, list):
            return [parse(f"{place}[{i}]", item) for i, item in enumerate(value)]
        try:
            return variable_type.parse(value.strip())
        except Exception as e:
            raise VariableParseError(place, variable_type.name, name, value, e) from e

    return parse(repr(name), value)
