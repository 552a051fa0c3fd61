"""The anthropic client, unmodified: every way of asking a harness uses, and what it makes of each refusal and fault."""

import json
import sys

import anthropic

base, spent = sys.argv[1], sys.argv[2]
client = anthropic.Anthropic(base_url=base, api_key="placeholder", max_retries=1, timeout=20)
tools = [{"name": "bash", "input_schema": {"type": "object"}}]
seen = {}


def ask(text, on=client, **more):
    messages = more.pop("messages", [{"role": "user", "content": text}])
    return on.messages.create(model="m-1", max_tokens=64, messages=messages, **more)


def failure(attempt):
    try:
        attempt()
        return "none"
    except anthropic.APIStatusError as error:
        said = error.body["error"] if isinstance(error.body, dict) else {}
        return [type(error).__name__, said.get("code"), error.response.headers.get("retry-after")]


seen["models"] = [one.id for one in client.models.list()] + [client.models.retrieve("m-1").id]

first = ask("hello", tools=tools, system=[{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}])
call = next(block for block in first.content if block.type == "tool_use")
seen["messages"] = [[block.type for block in first.content], call.input, first.usage.cache_read_input_tokens]
result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "README.md"}]}
history = [
    {"role": "user", "content": "hello"},
    {"role": "assistant", "content": first.content},
    {"role": "user", "content": [result]},
]
seen["messages turn"] = ask("", messages=history, tools=tools).stop_reason

seen["stream"] = [event.type for event in ask("hello", stream=True)][-1]
with client.messages.stream(
    model="m-1", max_tokens=64, messages=[{"role": "user", "content": "hello"}], tools=tools
) as stream:
    text = "".join(stream.text_stream)
    final = stream.get_final_message()
    seen["stream helper"] = [text, final.content[-1].input, final.usage.output_tokens]

seen["count"] = client.messages.count_tokens(
    model="m-1", messages=[{"role": "user", "content": "hello"}], tools=tools
).input_tokens
beta = client.beta.messages
seen["beta"] = beta.create(
    model="m-1",
    max_tokens=64,
    messages=[{"role": "user", "content": "hello"}],
    betas=["interleaved-thinking-2025-05-14"],
).stop_reason
seen["other beta"] = failure(
    lambda: beta.create(
        model="m-1",
        max_tokens=64,
        messages=[{"role": "user", "content": "hello"}],
        betas=["code-execution-2025-05-22"],
    )
)
seen["search"] = failure(
    lambda: ask("hello", tools=[{"type": "web_search_20250305", "name": "web_search"}])
)
source = {"type": "url", "url": "https://198.51.100.7/x.png"}
seen["fetched"] = failure(
    lambda: ask("", messages=[{"role": "user", "content": [{"type": "image", "source": source}]}])
)
seen["batch"] = failure(lambda: client.messages.batches.list())
seen["busy"] = failure(lambda: ask("busy"))
seen["broken"] = failure(lambda: list(ask("broken", stream=True)))
seen["spent"] = failure(lambda: ask("hello", on=client.with_options(base_url=spent)))
print(json.dumps(seen))
