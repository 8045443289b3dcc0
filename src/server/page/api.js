// Calls of the server's endpoints. Nothing here leaves the origin.

const KEY_PLACE = "roost-key";
let key = "";
try { key = localStorage.getItem(KEY_PLACE) ?? ""; } catch { /* no storage: asked for again */ }

export function setKey(text, keep) {
  key = text;
  try {
    if (keep) localStorage.setItem(KEY_PLACE, text);
    else localStorage.removeItem(KEY_PLACE);
  } catch { /* kept in memory alone */ }
}

export const currentKey = () => key;

// What the server said when it said no.
export class Refusal extends Error {
  constructor(status, body, headers) {
    const error = body?.error ?? {};
    super(error.message ?? `The server answered with status ${status}.`);
    this.status = status;
    this.refusal = error.refusal ?? error.code ?? "";
    this.requestId = headers?.get("x-request-id") ?? "";
    this.retryAfter = Number(headers?.get("retry-after") ?? 0);
  }
}

async function call(path, options = {}) {
  const headers = { ...(options.headers ?? {}) };
  if (key) headers.Authorization = `Bearer ${key}`;
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  let body = null;
  try { body = await response.json(); } catch { /* no JSON: the status says enough */ }
  throw new Refusal(response.status, body, response.headers);
}

export const getJson = async (path) => (await call(path)).json();
export const getText = async (path) => (await call(path)).text();
export const post = (path) => call(path, { method: "POST" });

// Sends a Chat request and yields the objects of its stream.
export async function* streamChat(body, signal) {
  const response = await call("/v1/chat/completions", {
    method: "POST", signal, headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("The reply broke off.");
    held += value;
    const lines = held.split("\n");
    held = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ")) continue;
      if (line === "data: [DONE]") return;
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new Refusal(200, event, response.headers);
      yield event;
    }
  }
}

// Sums of Prometheus samples by name, without labels: {"roost_requests_running": 2, …}.
export function parseMetrics(text) {
  const out = new Map();
  for (const line of text.split("\n")) {
    const match = /^([a-zA-Z_:][\w:]*)(\{.*\})? (\S+)/.exec(line);
    if (!match) continue;
    const value = Number(match[3]);
    if (Number.isFinite(value)) out.set(match[1], (out.get(match[1]) ?? 0) + value);
  }
  return out;
}
