"""Hook the batch into the interpreter. Every edit names short anchor lines; all are skipped if already made."""

import pathlib
import sys

root = pathlib.Path(sys.argv[1])


class Edits:
    def __init__(self, name):
        self.path = root / name
        self.text = self.path.read_text(encoding="utf-8")

    def _at(self, anchor, start):
        index = self.text.find("\n" + anchor, self.text.index(start))
        if index < 0:
            sys.exit(f"{self.path}: anchor not found: {anchor.strip()}")
        return index + 1

    def after(self, anchor, new, start):
        index = self.text.index("\n", self._at(anchor, start)) + 1
        self.text = self.text[:index] + new + self.text[index:]

    def cut(self, first, last, new, start):
        """Replace the lines from one that begins with `first` up to one that begins with `last`."""
        begin = self._at(first, start)
        end = self.text.index("\n" + last, begin) + 1
        self.text = self.text[:begin] + new + self.text[end:]

    def save(self):
        self.path.write_text(self.text, encoding="utf-8")


ir = Edits("ir.py")
if "on_error" in ir.text:
    sys.exit(0)
ir.after(
    "        generator_style: bool = False,",
    '        on_error: str = "keep",\n        max_retries: int = 0,\n',
    "def run_batch(",
)
ir.after(
    "        from sglang.lang.interpreter import run_program_batch",
    """        from sglang.lang.batch import check_error_parameters

        check_error_parameters(on_error, max_retries)
""",
    "def run_batch(",
)
ir.after(
    "            generator_style=generator_style,",
    "            on_error=on_error,\n            max_retries=max_retries,\n",
    "def run_batch(",
)
ir.save()

interpreter = Edits("interpreter.py")
interpreter.text = interpreter.text.replace(
    "from concurrent.futures import ThreadPoolExecutor\n", "", 1
).replace("import tqdm\n\n", "", 1)
interpreter.after(
    "from sglang.global_config import",
    "from sglang.lang.batch import Batch\n",
    "import asyncio",
)
interpreter.after(
    "    generator_style=False,",
    '    on_error="keep",\n    max_retries=0,\n',
    "def run_program_batch(",
)
interpreter.cut(
    "    if generator_style:",
    "def cache_program(",
    '''    def start(arguments):
        arguments.update(program.bind_arguments)
        executor = StreamExecutor(
            backend,
            arguments,
            default_sampling_para,
            chat_template=None,
            stream=False,
            num_api_spec_tokens=program.num_api_spec_tokens,
        )
        state = ProgramState(executor)
        try:
            run_internal(state, program, (), arguments, True)
        except Exception as e:
            return state, e
        return state, None

    batch = Batch(
        start, batch_arguments, num_threads, progress_bar, on_error, max_retries
    )
    return batch.results() if generator_style else list(batch.results())


''',
    "def run_program_batch(",
)
interpreter.after(
    "        self.error_ = None",
    "        # Guards error_ together with what is put into the queue: nothing is put after a failure.\n"
    "        self.error_lock = threading.Lock()\n",
    "class StreamExecutor",
)
interpreter.cut(
    "        self._init_var_event(expr)",
    "    def sync(",
    """        if not self.use_thread:
            self._init_var_event(expr)
            self._execute(expr)
            return
        with self.error_lock:
            self._init_var_event(expr)
            if self.error_ is None:
                self.queue.put(expr)
            else:
                self._set_all_events()

""",
    "    def submit(",
)
interpreter.cut(
    "            if self.worker.is_alive():",
    "        self.backend.end_program",
    """            with self.error_lock:
                if self.error_ is None and self.worker.is_alive():
                    self.queue.put(None)
""",
    "    def end(",
)
interpreter.cut(
    "            try:",
    "        if self.stream_text_event:",
    """            with self.error_lock:
                self.error_ = error
                try:
                    while True:
                        self.queue.task_done()
                        self.queue.get_nowait()
                except queue.Empty:
                    pass
                self._set_all_events()

""",
    "        # Clean the queue and events",
)
interpreter.cut(
    "    def _execute(",
    "        if isinstance(other, str)",
    """    def _set_all_events(self):
        for name in self.variable_event:
            self.variable_event[name].set()
        if self.stream_var_event:
            for name in self.stream_var_event:
                self.stream_var_event[name].set()

    def _execute(self, other):
""",
    "    def _thread_worker_func(",
)
interpreter.save()
