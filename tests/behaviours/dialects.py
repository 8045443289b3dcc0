"""The four dialects as one: a conversation in, and what a client puts together out of the answer."""

import dataclasses
import http.client
import json
import urllib.parse

DIALECTS = ("chat", "completions", "responses", "messages")
PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions", "responses": "/v1/responses",
         "messages": "/v1/messages"}
ENDED = {"chat": "stop", "completions": "stop", "responses": "completed", "messages": "end_turn"}
CUT = {"chat": "length", "completions": "length", "responses": "incomplete", "messages": "max_tokens"}


@dataclasses.dataclass
class Reply:
    """One choice, as text and counts; `calls` are pairs of a name and JSON text."""

    status: int = 200
    refusal: str = None
    reasoning: str = ""
    content: str = ""
    calls: list = dataclasses.field(default_factory=list)
    finish: str = None
    n_prompt: int = None
    n_reply: int = None
    n_cached: int = None
    n_reasoning: int = None
    roost: dict = dataclasses.field(default_factory=dict)
    headers: dict = dataclasses.field(default_factory=dict)
    body: str = ""

    @property
    def sha(self):
        return self.roost.get("token_sha256")

    def told(self):
        """What must not depend on streaming."""
        return (self.reasoning, self.content, [tuple(call) for call in self.calls], self.finish, self.n_prompt,
                self.n_reply, self.n_reasoning, self.sha)


def request(url, method, path, body=None, headers=None, timeout=300):
    address = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=timeout)
    try:
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def turns_of(dialect, turns):
    """The members of a body that hold a conversation.

    A turn is a text of the user, or a dict: {"system"}, {"user"}, {"tool"} (what the last call gave), or
    {"reasoning", "content", "calls"} of the assistant.
    """
    turns = [{"user": turn} if isinstance(turn, str) else turn for turn in turns]
    if dialect == "completions":
        assert all("user" in turn for turn in turns)
        return {"prompt": "".join(turn["user"] for turn in turns)}
    out, n_calls = [], 0
    for turn in turns:
        if "system" in turn:
            out.append({"role": "system", "content": turn["system"]})
        elif "user" in turn:
            out.append({"role": "user", "content": turn["user"]})
        elif "tool" in turn:
            ident = f"call{n_calls}"
            if dialect == "chat":
                out.append({"role": "tool", "tool_call_id": ident, "content": turn["tool"]})
            elif dialect == "responses":
                out.append({"type": "function_call_output", "call_id": ident, "output": turn["tool"]})
            else:
                out.append({"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": ident, "content": turn["tool"]}]})
        else:
            reasoning, content = turn.get("reasoning", ""), turn.get("content", "")
            calls = []
            for name, arguments in turn.get("calls", []):
                n_calls += 1
                calls.append((f"call{n_calls}", name, arguments))
            out.extend(ASSISTANT[dialect](reasoning, content, calls))
    return {"input" if dialect == "responses" else "messages": out}


def _chat_turn(reasoning, content, calls):
    turn = {"role": "assistant", "content": content, "reasoning_content": reasoning}
    if calls:
        turn["tool_calls"] = [{"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}
                              for ident, name, arguments in calls]
    return [turn]


def _responses_turn(reasoning, content, calls):
    out = []
    if reasoning:
        out.append({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": reasoning}]})
    if content or not calls:
        out.append({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": content}]})
    return out + [{"type": "function_call", "call_id": ident, "name": name, "arguments": arguments}
                  for ident, name, arguments in calls]


def _messages_turn(reasoning, content, calls):
    blocks = [{"type": "thinking", "thinking": reasoning, "signature": "x"}] if reasoning else []
    blocks += [{"type": "text", "text": content}] if content else []
    return [{"role": "assistant", "content": blocks + [
        {"type": "tool_use", "id": ident, "name": name, "input": json.loads(arguments)}
        for ident, name, arguments in calls]}]


ASSISTANT = {"chat": _chat_turn, "responses": _responses_turn, "messages": _messages_turn}


def tool(dialect, name, schema, **more):
    if dialect == "messages":
        return {"name": name, "input_schema": schema, **more}
    if dialect == "responses":
        return {"type": "function", "name": name, "parameters": schema, **more}
    # In the order in which the other dialects are printed: a tool of Chat is printed as it was sent.
    return {"type": "function", "function": {"name": name, **more, "parameters": schema}}


def must_call(dialect, name=None):
    if dialect == "messages":
        return {"type": "tool", "name": name} if name else {"type": "any"}
    if name is None:
        return "required"
    return {"type": "function", "name": name} if dialect == "responses" else {
        "type": "function", "function": {"name": name}}


def schema_fields(dialect, schema):
    if dialect == "chat":
        return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}
    if dialect == "responses":
        return {"text": {"format": {"type": "json_schema", "name": "x", "schema": schema}}}
    if dialect == "messages":
        return {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    return {"structured_outputs": {"json": schema}}


def body_of(dialect, turns, stream=False, **fields):
    body = {"model": "x", **turns_of(dialect, turns), **fields}
    if dialect == "responses" and "max_tokens" in body:
        body["max_output_tokens"] = body.pop("max_tokens")
    if dialect == "completions":
        for key in ("enable_thinking", "tools", "tool_choice"):
            body.pop(key, None)
    if stream:
        body["stream"] = True
        if dialect in ("chat", "completions"):
            body["stream_options"] = {"include_usage": True}
    return body


def ask(server, dialect, turns, stream=False, headers=None, **fields):
    body = body_of(dialect, turns, stream, **fields)
    status, got, text = request(server.url, "POST", PATHS[dialect], body, headers)
    reply = Reply(status=status, headers={key.lower(): value for key, value in got.items()}, body=text)
    if status != 200:
        reply.refusal = json.loads(text)["error"]["refusal"]
    elif stream:
        for record in text.split("\n\n"):
            data = [line[6:] for line in record.split("\n") if line.startswith("data: ")]
            if data and data[0] != "[DONE]":
                READ_EVENT[dialect](json.loads(data[0]), reply)
    else:
        READ_WHOLE[dialect](json.loads(text), reply)
    return reply


def _openai_counts(body, reply):
    usage = body.get("usage")
    if usage:
        reply.n_prompt, reply.n_reply = usage["prompt_tokens"], usage["completion_tokens"]
        reply.n_cached = usage["prompt_tokens_details"]["cached_tokens"]
        reply.n_reasoning = usage["completion_tokens_details"]["reasoning_tokens"]
    reply.roost = body.get("roost", reply.roost)


def _chat_whole(body, reply):
    _openai_counts(body, reply)
    choice = body["choices"][0]
    message = choice["message"]
    reply.content, reply.reasoning = message["content"] or "", message.get("reasoning_content", "")
    reply.calls = [[call["function"]["name"], call["function"]["arguments"]] for call in message.get("tool_calls", [])]
    reply.finish = choice["finish_reason"]


def _chat_event(event, reply):
    _openai_counts(event, reply)
    for choice in event["choices"]:
        delta = choice["delta"]
        reply.content += delta.get("content") or ""
        reply.reasoning += delta.get("reasoning_content", "")
        for call in delta.get("tool_calls", []):
            if "id" in call:
                assert call["index"] == len(reply.calls)
                reply.calls.append([call["function"]["name"], ""])
            reply.calls[call["index"]][1] += call["function"]["arguments"]
        reply.finish = choice["finish_reason"] or reply.finish


def _completions_any(body, reply):
    _openai_counts(body, reply)
    for choice in body["choices"]:
        reply.content += choice["text"]
        reply.finish = choice["finish_reason"] or reply.finish


def _response_counts(response, reply):
    usage = response["usage"]
    reply.n_prompt, reply.n_reply = usage["input_tokens"], usage["output_tokens"]
    reply.n_cached = usage["input_tokens_details"]["cached_tokens"]
    reply.n_reasoning = usage["output_tokens_details"]["reasoning_tokens"]
    reply.finish, reply.roost = response["status"], response["roost"]


def _responses_whole(body, reply):
    _response_counts(body, reply)
    for item in body["output"]:
        if item["type"] == "function_call":
            reply.calls.append([item["name"], item["arguments"]])
        elif item["type"] == "reasoning":
            reply.reasoning += "".join(part["text"] for part in item["content"])
        else:
            reply.content += "".join(part["text"] for part in item["content"])


def _responses_event(event, reply):
    kind = event["type"]
    if kind == "response.output_item.added" and event["item"]["type"] == "function_call":
        reply.calls.append([event["item"]["name"], ""])
    elif kind == "response.function_call_arguments.delta":
        reply.calls[-1][1] += event["delta"]
    elif kind == "response.reasoning_text.delta":
        reply.reasoning += event["delta"]
    elif kind == "response.output_text.delta":
        reply.content += event["delta"]
    elif kind in ("response.completed", "response.incomplete"):
        _response_counts(event["response"], reply)
        whole = Reply()
        _responses_whole(event["response"], whole)
        assert (whole.reasoning, whole.content, whole.calls) == (reply.reasoning, reply.content, reply.calls)


def _messages_counts(body, reply):
    usage = body["usage"]
    reply.n_cached = usage["cache_read_input_tokens"]
    reply.n_prompt = usage["input_tokens"] + reply.n_cached + usage["cache_creation_input_tokens"]
    reply.n_reply = usage["output_tokens"]
    reply.roost = body["roost"]


def _messages_whole(body, reply):
    _messages_counts(body, reply)
    reply.finish = body["stop_reason"]
    for block in body["content"]:
        if block["type"] == "tool_use":
            reply.calls.append([block["name"], json.dumps(block["input"], ensure_ascii=False)])
        elif block["type"] == "thinking":
            reply.reasoning += block["thinking"]
        else:
            reply.content += block["text"]


def _messages_event(event, reply):
    kind = event["type"]
    if kind == "content_block_start" and event["content_block"]["type"] == "tool_use":
        reply.calls.append([event["content_block"]["name"], ""])
    elif kind == "content_block_delta":
        delta = event["delta"]
        reply.reasoning += delta.get("thinking", "")
        reply.content += delta.get("text", "")
        if "partial_json" in delta:
            reply.calls[-1][1] += delta["partial_json"]
    elif kind == "content_block_stop" and reply.calls and reply.calls[-1][1]:
        reply.calls[-1][1] = json.dumps(json.loads(reply.calls[-1][1]), ensure_ascii=False)
    elif kind == "message_delta":
        _messages_counts(event, reply)
        reply.finish = event["delta"]["stop_reason"]


READ_WHOLE = {"chat": _chat_whole, "completions": _completions_any, "responses": _responses_whole,
              "messages": _messages_whole}
READ_EVENT = {"chat": _chat_event, "completions": _completions_any, "responses": _responses_event,
              "messages": _messages_event}


def prompt_ids(server, dialect, turns, **fields):
    """The ids that a generation with this body would use."""
    body = body_of(dialect, turns, **fields)
    status, _, text = request(server.url, "POST", f"/apply-template?dialect={dialect}", body)
    assert status == 200, text
    return json.loads(text)["token_ids"]


def as_turn(reply):
    """A reply as the client sends it back."""
    return {"reasoning": reply.reasoning, "content": reply.content, "calls": reply.calls}
