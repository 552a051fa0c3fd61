"""Adds the import and the map entry of the new detector to the parser's registry, once."""

import re
import sys

path = sys.argv[1]
with open(path, encoding="utf-8") as file:
    source = file.read()

import_line = (
    "from sglang.srt.function_call.orrery_detector import OrreryDetector\n"
)
entry = '        "orrery": OrreryDetector,\n'

if import_line not in source:
    anchor = re.search(r"^from sglang\.srt\.function_call\.pythonic_detector .*\n", source, re.M)
    if anchor is None:
        sys.exit(f"{path}: no import to stand beside")
    source = source[: anchor.start()] + import_line + source[anchor.start() :]

if entry not in source:
    anchor = re.search(r'^ {8}"pythonic": \w+,\n', source, re.M)
    if anchor is None:
        sys.exit(f"{path}: no map entry to stand beside")
    source = source[: anchor.start()] + entry + source[anchor.start() :]

with open(path, "w", encoding="utf-8") as file:
    file.write(source)
