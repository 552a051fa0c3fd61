"""The openai client, unmodified: every way of asking a harness uses, and what it makes of each refusal and fault."""

import json
import sys

import openai

base, spent = sys.argv[1], sys.argv[2]
client = openai.OpenAI(base_url=base, api_key="placeholder", max_retries=1, timeout=20)
tools = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
flat = [{"type": "function", "name": "bash", "parameters": {"type": "object"}, "strict": False}]
seen = {}


def say(text):
    return [{"role": "user", "content": text}]


def failure(ask):
    try:
        ask()
        return "none"
    except openai.APIStatusError as error:
        return [type(error).__name__, error.status_code, error.code, error.response.headers.get("retry-after")]
    except openai.APIError as error:
        return [type(error).__name__, error.code]


seen["models"] = [one.id for one in client.models.list()] + [client.models.retrieve("m-1").id]

answer = client.chat.completions.create(model="m-1", messages=say("hello"), tools=tools, temperature=0)
call = answer.choices[0].message.tool_calls[0]
seen["chat"] = [answer.choices[0].message.content, call.function.arguments, answer.usage.prompt_tokens]
turn = answer.choices[0].message.model_dump(exclude_none=True)
result = {"role": "tool", "tool_call_id": call.id, "content": "README.md"}
second = client.chat.completions.create(model="m-1", messages=[*say("hello"), turn, result], tools=tools)
seen["chat turn"] = second.choices[0].message.content

text, usage = "", None
for chunk in client.chat.completions.create(
    model="m-1", messages=say("hello"), stream=True, stream_options={"include_usage": True}
):
    usage = chunk.usage or usage
    text += "".join(choice.delta.content or "" for choice in chunk.choices)
seen["chat stream"] = [text, usage.completion_tokens]

first = client.responses.create(model="m-1", input="hello", tools=flat, store=False)
seen["responses"] = [first.output_text, [item.type for item in first.output], first.usage.input_tokens]
call = next(item for item in first.output if item.type == "function_call")
items = [item.model_dump() for item in first.output]
result = {"type": "function_call_output", "call_id": call.call_id, "output": "README.md"}
second = client.responses.create(model="m-1", input=[*say("hello"), *items, result], tools=flat)
seen["responses turn"] = second.output_text

events = list(client.responses.create(model="m-1", input="hello", stream=True))
seen["responses stream"] = [events[0].type, events[-1].type, events[-1].response.output_text]
with client.responses.stream(model="m-1", input="hello", tools=flat) as stream:
    deltas = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
    seen["responses helper"] = [deltas, stream.get_final_response().output_text]

seen["search"] = failure(
    lambda: client.responses.create(model="m-1", input="hello", tools=[{"type": "web_search"}])
)
seen["search option"] = failure(
    lambda: client.chat.completions.create(model="m-1", messages=say("hello"), web_search_options={})
)
seen["stored"] = failure(
    lambda: client.responses.create(model="m-1", input="hello", previous_response_id="resp_1")
)
seen["fetched"] = failure(lambda: client.responses.retrieve("resp_1"))
seen["model"] = failure(lambda: client.chat.completions.create(model="m-2", messages=say("hello")))
seen["file"] = failure(lambda: client.files.create(file=b"x", purpose="user_data"))
seen["busy"] = failure(lambda: client.chat.completions.create(model="m-1", messages=say("busy")))
seen["broken"] = failure(
    lambda: list(client.chat.completions.create(model="m-1", messages=say("broken"), stream=True))
)
seen["broken responses"] = failure(
    lambda: list(client.responses.create(model="m-1", input="broken", stream=True))
)
poor = client.with_options(base_url=spent)
seen["spent"] = failure(lambda: poor.chat.completions.create(model="m-1", messages=say("hello")))
print(json.dumps(seen))
