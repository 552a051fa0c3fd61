"""Types through the life of a program: new texts, new generations, forks, batches, reasoning."""

import pathlib
import sys

import pytest
from pydantic import BaseModel

import sglang as sgl

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from typed import Says, one  # noqa: E402


class City(BaseModel):
    name: str


def run(body, *texts, **options):
    return sgl.function(body).run(backend=Says(*texts), **options)


def test_a_program_uses_its_values():
    def body(s):
        s += "how many? " + sgl.gen("n", dtype=int)
        for index in range(s.parsed("n")):
            s += sgl.gen(f"city{index}", json_schema=City)
        return [s.parsed(f"city{index}").name for index in range(s.parsed("n"))]

    state = run(body, "2", '{"name": "a"}', '{"name": "b"}')
    assert state.ret_value == ["a", "b"]


def test_a_bad_text_disturbs_nobody_else():
    def body(s):
        s += sgl.gen("n", dtype=int) + "," + sgl.gen("m", dtype=int)

    state = run(body, "x", "2")
    assert (state.text(), state.error(), state.parsed("m")) == ("x,2", None, 2)
    with pytest.raises(sgl.VariableParseError):
        state.parsed("n")


def test_the_value_follows_the_text():
    state = one('{"name": "a"}', json_schema=City)
    assert state.parsed("x").name == "a"
    state["x"] = '{"name": "b"}'
    assert state.parsed("x").name == "b"
    state["x"] = "no"
    with pytest.raises(sgl.VariableParseError):
        state.parsed("x")


@pytest.mark.parametrize(
    "options, value",
    [({"dtype": int}, 5), ({"dtype": float}, 5.0), ({"json_schema": {}}, 5)],
    ids=["int", "float", "json"],
)
def test_the_last_generation_has_the_type(options, value):
    def body(s):
        s += sgl.gen("x", json_schema=City)
        s += sgl.gen("x", **options)

    found = run(body, "{}", "5").parsed("x")
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    "last",
    [lambda: sgl.gen("x"), lambda: sgl.select("x", choices=["5", "6"])],
    ids=["gen", "select"],
)
def test_a_last_generation_without_a_type_takes_it_away(last):
    class Backend(Says):
        def select(self, s, choices, temperature, choices_method=None):
            from sglang.lang.choices import ChoicesDecision

            return ChoicesDecision(decision=choices[0])

    def body(s):
        s += sgl.gen("x", dtype=int)
        s += last()

    state = sgl.function(body).run(backend=Backend("4", "5"))
    assert state["x"] == "5"
    with pytest.raises(ValueError, match="without json_schema or dtype$"):
        state.parsed("x")


def test_types_of_different_states_are_apart():
    first, second = one("1", dtype=int), one("1", dtype=float)
    assert type(first.parsed("x")) is int and type(second.parsed("x")) is float


def test_the_same_expression_in_two_programs():
    expr = sgl.gen("x", json_schema=City)

    def body(s):
        s += expr

    for name in "ab":
        assert run(body, f'{{"name": "{name}"}}').parsed("x").name == name


def test_children_know_what_their_parent_knew():
    def body(s):
        s += sgl.gen("x", dtype=int)
        forks = s.fork(2)
        return [fork.parsed("x") for fork in forks.states]

    assert run(body, "5").ret_value == [5, 5]


def test_children_do_not_change_their_parent():
    def body(s):
        s += sgl.gen("x", dtype=int)
        forks = s.fork(1)
        forks += sgl.gen("x", dtype=float)
        child = forks[0].parsed("x")
        forks.join()
        return child, s.parsed("x")

    child, parent = run(body, "5", "6.5").ret_value
    assert (child, parent) == (6.5, 5)


def test_joined_variables_are_lists():
    def body(s):
        s += "x"
        forks = s.fork(3)
        for index, fork in enumerate(forks.states):
            fork += sgl.gen("city", json_schema=City)
            fork.sync()
        forks.join()

    state = run(body, *[f'{{"name": "{name}"}}' for name in "abc"])
    assert [city.name for city in state.parsed("city")] == ["a", "b", "c"]


def test_a_copy_is_joined_as_a_list():
    def body(s):
        with s.copy() as child:
            child += sgl.gen("n", dtype=int)

    assert run(body, "4").parsed("n") == [4]


def test_lists_of_lists():
    def body(s):
        forks = s.fork(2)
        for fork in forks.states:
            fork += sgl.gen("n", dtype=int, n=2)
            fork.sync()
        forks.join()

    state = run(body, ["1", "2"], ["3", "4"])
    assert state.parsed("n") == [[1, 2], [3, 4]]


def test_batches():
    def body(s, text):
        s += text + sgl.gen("n", dtype=int)

    states = sgl.function(body).run_batch(
        [{"text": "a"}, {"text": "b"}], backend=Says("1", "2"), num_threads=1
    )
    assert [state.parsed("n") for state in states] == [1, 2]


def test_reasoning_is_taken_out_before():
    def body(s):
        s += sgl.user("q")
        s += sgl.assistant(
            sgl.separate_reasoning(sgl.gen("x", json_schema=City), model_type="qwen3")
        )

    state = run(body, '<think>1 or 2?</think>{"name": "a"}')
    state.sync()
    assert state.parsed("x").name == "a"
    assert state["x_reasoning_content"] == "1 or 2?"
    with pytest.raises(ValueError, match="without json_schema or dtype$"):
        state.parsed("x_reasoning_content")


def test_scopes_have_no_type():
    def body(s):
        with s.var_scope("all"):
            s += sgl.gen("n", dtype=int)

    state = run(body, "3")
    assert (state["all"], state.parsed("n")) == ("3", 3)
    with pytest.raises(ValueError, match="without json_schema or dtype$"):
        state.parsed("all")
