"""A program whose executor failed ends, whenever that happened. The no-op may hang here, so every call has a deadline."""

import pathlib
import sys
import threading

import pytest

import sglang as sgl

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))

from scripted import Down, Scripted, batch, failing, prompts, within  # noqa: E402


class Held(Scripted):
    """Fails when it is told to; `failed` says that the executor has seen it."""

    def __init__(self):
        self.release = threading.Event()
        super().__init__(self._fail)

    def _fail(self, text):
        assert self.release.wait(30)
        raise Down(text)


def wait_until_failed(state):
    executor = state.stream_executor
    executor.worker.join(30)
    assert not executor.worker.is_alive()


def late(s, prompt):
    s += prompt + sgl.gen("answer")
    s.stream_executor.backend.release.set()
    wait_until_failed(s)
    s += "more" + sgl.gen("second")
    s += sgl.gen("third")


def early(s, prompt):
    s += prompt + sgl.gen("answer")
    s += "more" + sgl.gen("second")
    s += sgl.gen("third")
    s.stream_executor.backend.release.set()


programs = pytest.mark.parametrize(
    "body", [early, late], ids=["submitted before", "submitted after"]
)
streams = pytest.mark.parametrize("stream", [False, True])


def run(body, stream=False):
    state = within(
        30, lambda: sgl.function(body).run("a", backend=Held(), stream=stream)
    )
    wait_until_failed(state)
    return state


@programs
@streams
@pytest.mark.parametrize("method", ["sync", "text", "messages", "error"])
def test_the_state_answers(method, body, stream):
    (error,) = batch(sgl.function(body), prompts("a"), Held(), on_error="return")
    assert isinstance(error, Down) and str(error) == "a"
    state = run(body, stream)
    for _ in range(2):
        got = within(20, getattr(state, method))
    assert isinstance(within(20, state.error), Down)
    if method == "text":
        assert got == "a"


@programs
@streams
@pytest.mark.parametrize("name", ["answer", "second", "third"])
def test_variables_that_will_never_come(name, body, stream):
    (error,) = batch(sgl.function(body), prompts("a"), Held(), on_error="return")
    assert isinstance(error, Down)
    state = run(body, stream)
    assert isinstance(within(20, state.error), Down)
    if stream and name == "answer":
        assert within(20, state.get_var, name) == "" if name in state else True
    else:
        with pytest.raises(KeyError):
            within(20, state.get_var, name)
    assert within(20, state.get_meta_info, name) is None


@pytest.mark.parametrize("depth", [1, 5, 40])
@pytest.mark.parametrize("threads", [1, 8])
def test_batches_of_failing_programs_end(threads, depth):
    def body(s, prompt):
        s += prompt + sgl.gen("answer")
        for index in range(depth):
            s += f"{index}" + sgl.gen(f"v{index}")

    names = [f"p{index}" for index in range(60)]

    def answer(text):
        if text in names[::2]:
            raise Down(text)
        return "ok"

    backend = Scripted(answer)
    got = batch(
        sgl.function(body),
        prompts(*names),
        backend,
        num_threads=threads,
        on_error="return",
    )
    assert [isinstance(item, Down) for item in got] == [True, False] * 30
    assert [str(item) for item in got[::2]] == names[::2]


def test_the_error_stays_the_first_one():
    def body(s, prompt):
        s += prompt + sgl.gen("answer")
        s.stream_executor.backend.release.set()
        wait_until_failed(s)
        s += sgl.gen("second")
        raise ValueError("later")

    (error,) = batch(sgl.function(body), prompts("a"), Held(), on_error="return")
    assert isinstance(error, Down)


def test_programs_that_read_after_a_failure_fail_by_the_backend():
    def body(s, prompt):
        late(s, prompt)
        return s["third"]

    (error,) = batch(sgl.function(body), prompts("a"), Held(), on_error="return")
    assert isinstance(error, Down)


def test_a_program_may_look_at_its_own_error():
    found = []

    def body(s, prompt):
        s += prompt + sgl.gen("answer")
        found.append(s.error())
        s += "again"
        found.append(s.text())

    (error,) = batch(sgl.function(body), prompts("a"), Scripted(failing("a")), on_error="return")
    assert found == [error, "a"]


def test_a_fork_of_a_failed_program_ends():
    def body(s, prompt):
        s += prompt + sgl.gen("answer")
        forks = s.fork(2)
        forks += sgl.gen("part")
        forks.join()

    (error,) = batch(sgl.function(body), prompts("a"), Scripted(failing("a")), on_error="return")
    assert isinstance(error, Down)
