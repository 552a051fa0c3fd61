"""Runs the items of a batch: how often each is tried, and what becomes of one that failed."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterator, NamedTuple, Optional

import tqdm

ON_ERROR = ("keep", "raise", "return")

# Submitting more at once would keep a generator from yielding its first results.
CHUNK_SIZE = 200


def check_error_parameters(on_error: Any, max_retries: int) -> None:
    if on_error not in ON_ERROR:
        raise ValueError(
            f"on_error must be 'keep', 'raise' or 'return', got {on_error!r}"
        )
    if max_retries < 0:
        raise ValueError(f"max_retries must not be negative, got {max_retries}")


class Outcome(NamedTuple):
    state: Any
    executor_error: Optional[Exception]
    body_error: Optional[Exception]

    @property
    def error(self) -> Optional[Exception]:
        return self.executor_error or self.body_error


class Batch:
    def __init__(self, start, batch_arguments, num_threads, progress_bar, on_error, max_retries):
        self.start = start  # a dict of arguments -> (state, exception of the program's own code)
        self.batch_arguments = batch_arguments
        self.num_threads = num_threads
        self.progress_bar = progress_bar
        self.on_error = on_error
        self.max_retries = max_retries
        self.stopped = threading.Event()

    def results(self) -> Iterator[Any]:
        bar = tqdm.tqdm(total=len(self.batch_arguments)) if self.progress_bar else None
        outcomes = self._in_place() if self.num_threads == 1 else self._in_threads()
        try:
            for index, outcome in enumerate(outcomes):
                if bar is not None:
                    bar.update()
                yield self._result(index, outcome)
        finally:
            self.stopped.set()
            outcomes.close()
            if bar is not None:
                bar.close()

    def _result(self, index: int, outcome: Outcome) -> Any:
        error = outcome.error
        if self.on_error == "keep":
            if outcome.body_error is not None:
                raise outcome.body_error
            return outcome.state
        if error is None:
            return outcome.state
        if self.on_error == "return":
            return error
        error.add_note(f"run_batch: item {index}")
        raise error

    def _in_place(self):
        for arguments in self.batch_arguments:
            yield self._run(arguments)

    def _in_threads(self):
        executor = ThreadPoolExecutor(self.num_threads)
        try:
            for start in range(0, len(self.batch_arguments), CHUNK_SIZE):
                chunk = self.batch_arguments[start : start + CHUNK_SIZE]
                for future in [executor.submit(self._run, item) for item in chunk]:
                    yield future.result()
        finally:
            self.stopped.set()
            executor.shutdown(wait=True, cancel_futures=True)

    def _run(self, arguments) -> Optional[Outcome]:
        # Items are started in order, so nobody reads the result of one that was not.
        if self.stopped.is_set():
            return None
        for attempt in range(self.max_retries + 1):
            state, body_error = self.start(dict(arguments))
            outcome = Outcome(state, state.error(), body_error)
            if outcome.error is None:
                break
        ends = self.on_error == "raise" or (
            self.on_error == "keep" and outcome.body_error is not None
        )
        if outcome.error is not None and ends:
            self.stopped.set()
        return outcome
