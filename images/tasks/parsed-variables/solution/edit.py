"""Hook types into gen, the interpreter and the exports. Edits name short anchor lines; all are skipped if already made."""

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

    def before(self, anchor, new, start):
        index = self._at(anchor, start)
        self.text = self.text[:index] + new + self.text[index:]

    def after(self, anchor, new, start):
        index = self.text.index("\n", self._at(anchor, start)) + 1
        self.text = self.text[:index] + new + self.text[index:]

    def replace(self, anchor, new, start):
        index = self._at(anchor, start)
        self.text = self.text[:index] + new + self.text[self.text.index("\n", index) + 1 :]

    def save(self):
        self.path.write_text(self.text, encoding="utf-8")


ir = Edits("lang/ir.py")
if "variable_type" in ir.text:
    sys.exit(0)
ir.after(
    "        self.name = name",
    "        self.variable_type = None  # set by api.gen where a schema says more than text\n",
    "class SglGen(",
)
ir.save()

api = Edits("lang/api.py")
api.text = api.text.replace(
    "    SglVideo,\n)\n",
    "    SglVideo,\n)\nfrom sglang.lang.parsed import VariableParseError, schema_and_type\n",
    1,
)
api.replace(
    "    json_schema: Optional[str] = None,",
    "    json_schema: Optional[Union[str, dict, type]] = None,\n",
    "def gen(",
)
api.before(
    "    if choices:",
    "    json_schema, variable_type = schema_and_type(json_schema)\n\n",
    "def gen(",
)
api.replace("    return SglGen(", "    expr = SglGen(\n", "def gen(")
end = api.text.index("        json_schema,\n    )\n") + len("        json_schema,\n    )\n")
api.text = (
    api.text[:end] + "    expr.variable_type = variable_type\n    return expr\n" + api.text[end:]
)
api.save()

interpreter = Edits("lang/interpreter.py")
interpreter.after(
    "        self.variable_event = {}",
    "        self.variable_types = {}  # Dict[name: str -> how its text is parsed]\n",
    "class StreamExecutor",
)
interpreter.after(
    "            exes[i].variables = dict(self.variables)",
    "            exes[i].variable_types = dict(self.variable_types)\n",
    "    def fork(",
)
interpreter.before(
    "            self.variable_event[expr.name] = threading.Event()",
    """            if not isinstance(expr, SglSeparateReasoning):
                self.variable_types[expr.name] = type_of(expr)
""",
    "    def _init_var_event(",
)
interpreter.before(
    "    def set_var(self",
    '''    def parsed(self, name):
        """The value of a variable that was generated with a json_schema or a dtype."""
        value = self.get_var(name)
        return parse_variable(name, value, self.stream_executor.variable_types.get(name))

''',
    "class ProgramState:",
)
interpreter.after(
    "                for k in new_vars:",
    """                    types = child_state.stream_executor.variable_types
                    self.src_state.stream_executor.variable_types[k] = types.get(k)
""",
    "class ProgramStateGroup",
)
interpreter.before(
    "from sglang.utils import (",
    "from sglang.lang.parsed import parse_variable, type_of\n",
    "import asyncio",
)
interpreter.save()

package = Edits("__init__.py")
package.after("    Engine,", "    VariableParseError,\n", "from sglang.lang.api import")
package.after('    "Engine",', '    "VariableParseError",\n', "__all__")
package.save()
