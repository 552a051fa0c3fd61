"""Register the template: a template like the others, and a matching function that is asked first."""

import pathlib
import sys

path = pathlib.Path(sys.argv[1])
text = path.read_text(encoding="utf-8")
anchor = '\nif __name__ == "__main__":'
if anchor not in text:
    sys.exit(f"{path}: anchor not found")
if "vesper_template" not in text:
    new = """
from sglang.lang.vesper_template import (  # noqa: E402
    match_vesper,
    vesper_chat_template,
)

register_chat_template(vesper_chat_template(ChatTemplate))
# Asked before the others: they look at the whole path.
matching_function_registry.insert(0, match_vesper)

"""
    path.write_text(text.replace(anchor, new + anchor, 1), encoding="utf-8")
