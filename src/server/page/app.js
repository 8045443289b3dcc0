// The page: conversation, composer, panels.

import { getJson, Refusal, streamChat } from "/app/api.js";
import { Live } from "/app/live.js";
import { Settings } from "/app/settings.js";
import { Store } from "/app/store.js";
import { element, rendered } from "/app/text.js";

const find = (id) => document.getElementById(id);
const store = new Store();
const settings = new Settings(find("settings-form"));
const live = new Live({ charts: find("charts"), state: find("live-state"), requests: find("requests"),
  totals: find("totals") });
let running = null;   // {controller, turn} of the reply under way
let pictures = [];    // data URLs of the message being written
let retryAt = 0;

// ---- turns -------------------------------------------------------------------------------------

// The turns as messages of a request. Reasoning goes back, so that the prompt is read again from
// the cache; tool calls keep their ids.
function messagesOf(turns) {
  const out = [];
  if (settings.value("system")) out.push({ role: "system", content: settings.value("system") });
  for (const turn of turns) {
    if (turn.role === "user") {
      const parts = (turn.pictures ?? []).map((url) => ({ type: "image_url", image_url: { url } }));
      out.push({ role: "user",
        content: parts.length ? [...parts, { type: "text", text: turn.text }] : turn.text });
    } else if (turn.role === "tool") {
      out.push({ role: "tool", tool_call_id: turn.callId, content: turn.text });
    } else {
      const message = { role: "assistant", content: turn.text };
      if (turn.reasoning) message.reasoning_content = turn.reasoning;
      if (turn.calls?.length)
        message.tool_calls = turn.calls.map((call) => ({ id: call.id, type: "function",
          function: { name: call.name, arguments: call.arguments } }));
      out.push(message);
    }
  }
  return out;
}

// A line of what matters, and behind it everything that the server told of the reply.
function figuresView(turn) {
  const { usage, timings, roost } = turn;
  const ms = (value) => value >= 1000 ? `${(value / 1000).toFixed(1)} s` : `${Math.round(value)} ms`;
  const rate = (value) => `${value.toFixed(1)} tokens/s`;
  const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  const rows = [["Prompt", `${usage.prompt_tokens} tokens`], ["Reused", `${cached} tokens`],
    ["Reply", `${usage.completion_tokens} tokens`]];
  const add = (name, value, print = String) => {
    if (value !== undefined && value !== null) rows.push([name, print(value)]);
  };
  add("First token after", roost?.ttft_ms, ms);
  add("Waited in the queue", roost?.queue_ms, ms);
  add("Reading", timings?.prompt_per_second, rate);
  add("Writing", timings?.predicted_per_second, rate);
  add("Accept length", roost?.accept_length, (value) => value.toFixed(2));
  add("Ended by", roost?.finish_detail);
  add("Seed", roost?.seed);
  const short = [`${usage.completion_tokens} tokens`];
  if (timings?.predicted_per_second) short.push(`${timings.predicted_per_second.toFixed(1)}/s`);
  if (roost?.ttft_ms !== undefined) short.push(`first after ${ms(roost.ttft_ms)}`);
  if (cached) short.push(`${cached} reused`);
  const list = element("dl", {}, ...rows.map(([name, value]) =>
    element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  if (roost?.accepted_per_position?.length)
    list.append(element("div", {}, element("dt", {}, "Guesses that held, by place"),
      element("dd", {}, acceptBars(roost.accepted_per_position))));
  return element("details", { class: "figures" }, element("summary", {}, short.join(" · ")), list);
}

// Bars of drafted tokens accepted per position, as text for those who cannot see them.
function acceptBars(perPosition) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "bars");
  svg.setAttribute("viewBox", `0 0 ${perPosition.length * 10} 30`);
  svg.setAttribute("width", perPosition.length * 10);
  svg.setAttribute("preserveAspectRatio", "xMinYMax meet");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `Accepted per position: ${perPosition.map((v) => v.toFixed(2)).join(", ")}`);
  perPosition.forEach((value, i) => {
    const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    const height = Math.max(1, 30 * value);
    for (const [name, v] of [["x", i * 10], ["y", 30 - height], ["width", 8], ["height", height], ["rx", 1.5]])
      bar.setAttribute(name, v);
    svg.append(bar);
  });
  return svg;
}

function callView(call, index) {
  const turns = store.current.turns;
  const answer = turns.slice(index + 1).find((turn) => turn.role === "tool" && turn.callId === call.id);
  let shown = call.arguments;
  try { shown = JSON.stringify(JSON.parse(call.arguments), null, 2); } catch { /* still arriving */ }
  const out = element("details", { class: "call", open: !answer },
    element("summary", {}, `Tool call: ${call.name}`),
    element("pre", { tabindex: 0 }, element("code", {}, shown)));
  if (answer || running) return out;
  const id = `result-${call.id}`;
  const result = element("textarea", { id, rows: 2 });
  out.append(element("label", { for: id }, "Result"), result, element("button", { type: "button",
    onclick: () => answerCall(index, call, result.value) }, "Give result"));
  return out;
}

function answerCall(index, call, text) {
  const turns = store.current.turns;
  turns.push({ role: "tool", callId: call.id, text });
  const isOpen = (other) => !turns.some((turn) => turn.role === "tool" && turn.callId === other.id);
  store.save();
  if (turns[index].calls.some(isOpen)) show();
  else reply();
}

function reasoningView(turn) {
  const tokens = turn.usage?.completion_tokens_details?.reasoning_tokens;
  const time = turn.reasoningMs ? `${(turn.reasoningMs / 1000).toFixed(1)} s` : "";
  const isWriting = running?.turn === turn && !turn.text && !turn.calls?.length;
  const label = isWriting ? "Thinking" : "Thought";
  const details = [tokens ? `${tokens} tokens` : "", time].filter(Boolean).join(", ");
  const out = element("details", { class: "reasoning", open: isWriting && settings.value("open_reasoning") },
    element("summary", {}, details ? `${label} (${details})` : label));
  out.append(rendered(turn.reasoning));
  return out;
}

function toolsOf(turn, index) {
  const button = (label, action) => element("button", { type: "button", onclick: action }, label);
  const out = element("div", { class: "tools" },
    button("Copy", () => navigator.clipboard?.writeText(turn.text)));
  if (turn.role === "user") out.append(button("Edit", () => edit(index)));
  if (turn.role === "assistant" && running?.turn !== turn)
    out.append(button("Regenerate", () => regenerate(index)));
  return out;
}

function turnView(turn, index) {
  const names = { user: "You", assistant: "Reply", tool: "Tool result" };
  const out = element("article", { class: `turn ${turn.role}` }, element("h3", {}, names[turn.role]));
  for (const url of turn.pictures ?? []) out.append(element("img", { src: url, alt: "Picture of this message" }));
  if (turn.reasoning) out.append(reasoningView(turn));
  if (turn.text || turn.role !== "assistant") out.append(rendered(turn.text));
  for (const call of turn.calls ?? []) out.append(callView(call, index));
  if (running?.turn === turn) {
    if (turn.progress) out.append(element("progress", { max: turn.progress.total, value: turn.progress.processed,
      "aria-label": "Prompt read" }));
    if (!turn.text && !turn.reasoning) out.append(element("p", { class: "quiet waiting" }, "Waiting"));
  }
  if (turn.problem) out.append(problemView(turn, index));
  out.append(toolsOf(turn, index));
  if (turn.usage) out.append(figuresView(turn));
  return out;
}

function problemView(turn, index) {
  const { message, refusal, requestId } = turn.problem;
  const codes = [refusal, requestId ? `request ${requestId}` : ""].filter(Boolean).join(", ");
  return element("div", { class: "problem", role: "alert" },
    codes ? `${message} (${codes}) ` : `${message} `,
    element("button", { type: "button", onclick: () => regenerate(index) }, "Try again"));
}

// ---- showing -----------------------------------------------------------------------------------

const IDEAS = ["Explain what a hash table is", "Write a function that reverses a list", "Count from 1 to 20"];

function emptyView() {
  return element("div", { class: "empty" }, element("h2", {}, "What would you like to know?"),
    element("p", {}, "Ask something. Nothing you write leaves this server."),
    element("div", { class: "ideas" }, ...IDEAS.map((idea) => element("button", { type: "button",
      onclick: () => { find("entry").value = idea; find("entry").focus(); } }, idea))));
}

function show() {
  const log = find("log");
  const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  const views = store.current.turns.map(turnView);
  log.replaceChildren(...(views.length ? views : [emptyView()]));
  if (isAtEnd) log.scrollTop = log.scrollHeight;
  find("stop").hidden = running === null;
  find("send").hidden = running !== null;
  find("chat-list").replaceChildren(...store.chats.map((chat) => element("li", {},
    element("button", { type: "button", "aria-current": String(chat === store.current),
      onclick: () => { stop(); store.current = chat; show(); } }, chat.title),
    element("button", { type: "button", "aria-label": `Delete ${chat.title}`,
      onclick: () => { stop(); store.remove(chat); show(); } }, "×"))));
}

// Only the last turn changes while a reply arrives, at most once a frame.
let isShowing = false;
function showLast() {
  if (isShowing) return;
  isShowing = true;
  requestAnimationFrame(() => {
    isShowing = false;
    const log = find("log");
    const index = store.current.turns.length - 1;
    if (running?.chat !== store.current || index < 0 || !log.lastElementChild) return;
    const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
    const old = log.lastElementChild;
    const view = turnView(store.current.turns[index], index);
    const wasOpen = old.querySelector("details.reasoning")?.open;
    const details = view.querySelector("details.reasoning");
    if (details && wasOpen !== undefined) details.open = wasOpen;
    old.replaceWith(view);
    if (isAtEnd) log.scrollTop = log.scrollHeight;
  });
}

// For screen readers: whole sentences, not tokens.
function speaker() {
  let said = 0;
  return (text, isLast) => {
    const end = isLast ? text.length : Math.max(text.lastIndexOf(". "), text.lastIndexOf("\n")) + 1;
    if (end <= said) return;
    find("spoken").append(element("p", {}, text.slice(said, end)));
    said = end;
  };
}

function complain(message) {
  find("problem").textContent = message;
  find("problem").hidden = !message;
}

// ---- replies -----------------------------------------------------------------------------------

function takeDelta(turn, delta, begun) {
  if (delta.reasoning_content) {
    turn.reasoning += delta.reasoning_content;
    turn.reasoningMs = performance.now() - begun;
  }
  if (delta.content) turn.text += delta.content;
  for (const part of delta.tool_calls ?? []) {
    const call = turn.calls[part.index] ??= { id: "", name: "", arguments: "" };
    if (part.id) call.id = part.id;
    if (part.function?.name) call.name = part.function.name;
    call.arguments += part.function?.arguments ?? "";
  }
}

async function reply() {
  complain("");
  const chat = store.current;
  let members;
  try { members = settings.members(); } catch (error) { return complain(error.message); }
  const turn = { role: "assistant", text: "", reasoning: "", calls: [] };
  const body = { messages: messagesOf(chat.turns), stream: true, stream_options: { include_usage: true },
    return_progress: true, enable_thinking: find("thinking").checked, ...members };
  if (members.reasoning_effort) delete body.enable_thinking;
  chat.turns.push(turn);
  running = { controller: new AbortController(), turn, chat };
  const own = running;
  find("spoken").replaceChildren();
  const speak = speaker();
  show();
  const begun = performance.now();
  try {
    for await (const event of streamChat(body, own.controller.signal)) {
      if (event.prompt_progress) turn.progress = event.prompt_progress;
      takeDelta(turn, event.choices?.[0]?.delta ?? {}, begun);
      if (event.usage) Object.assign(turn, { usage: event.usage, timings: event.timings, roost: event.roost });
      speak(turn.text, false);
      if (running === own) showLast();
    }
  } catch (error) {
    if (error.name !== "AbortError") noteProblem(turn, error);
  }
  speak(turn.text, true);
  delete turn.progress;
  if (running === own) running = null;
  store.save();
  show();
}

function noteProblem(turn, error) {
  turn.problem = { message: error.message };
  if (!(error instanceof Refusal)) return;
  Object.assign(turn.problem, { refusal: error.refusal, requestId: error.requestId });
  retryAt = performance.now() + 1000 * error.retryAfter;
  if (error.status === 401) openPanel("settings");
}

function stop() {
  running?.controller.abort();
  running = null;
}

function edit(index) {
  stop();
  const turn = store.current.turns[index];
  store.current.turns.length = index;
  find("entry").value = turn.text;
  pictures = [...(turn.pictures ?? [])];
  showPictures();
  show();
  find("entry").focus();
}

function regenerate(index) {
  stop();
  store.current.turns.length = index;
  setTimeout(reply, Math.max(0, retryAt - performance.now()));
}

function send() {
  const text = find("entry").value.trim();
  if (running || (!text && pictures.length === 0)) return;
  store.current.turns.push({ role: "user", text, ...(pictures.length ? { pictures } : {}) });
  find("entry").value = "";
  pictures = [];
  showPictures();
  reply();
}

// ---- pictures ----------------------------------------------------------------------------------

function showPictures() {
  find("pictures").replaceChildren(...pictures.map((url, i) => element("li", {},
    element("img", { src: url, alt: `Picture ${i + 1}` }),
    element("button", { type: "button", "aria-label": `Remove picture ${i + 1}`,
      onclick: () => { pictures.splice(i, 1); showPictures(); } }, "Remove"))));
}

function addPictures(files) {
  for (const file of files) {
    if (!file.type.startsWith("image/") || find("picture").disabled) continue;
    const reader = new FileReader();
    reader.onload = () => { pictures.push(reader.result); showPictures(); };
    reader.readAsDataURL(file);
  }
}

// ---- panels and start --------------------------------------------------------------------------

function openPanel(name) {
  for (const id of ["chats", "settings", "live"]) {
    const isOpen = id === name && find(id).hidden;
    find(id).hidden = !isOpen;
    find(`show-${id}`).setAttribute("aria-expanded", String(isOpen));
  }
  if (find("live").hidden) live.stop();
  else live.start();
}

async function describeModel() {
  try {
    const [model] = (await getJson("/v1/models")).data;
    find("model").textContent = `${model.id} · ${model.context_length?.toLocaleString()} tokens`;
    document.title = `roost · ${model.id}`;
    const hasVision = model.capabilities?.vision === true;
    find("picture").disabled = !hasVision;
    find("picture-label").classList.toggle("off", !hasVision);
    find("picture-label").title = hasVision ? "" : "The served model reads no pictures";
  } catch (error) {
    find("model").textContent = error.message;
    if (error.status === 401) openPanel("settings");
    if (error.status === 503) setTimeout(describeModel, 1000);
  }
  try { settings.showDefaults((await getJson("/props")).defaults); } catch { /* not offered */ }
}

function download() {
  const data = new Blob([JSON.stringify(store.current, null, 2)], { type: "application/json" });
  const link = element("a", { href: URL.createObjectURL(data), download: "chat.json" });
  link.click();
  URL.revokeObjectURL(link.href);
}

for (const id of ["chats", "settings", "live"]) find(`show-${id}`).addEventListener("click", () => openPanel(id));
find("composer").addEventListener("submit", (event) => { event.preventDefault(); send(); });
find("entry").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
find("entry").addEventListener("paste", (event) => addPictures(event.clipboardData.files));
document.addEventListener("keydown", (event) => { if (event.key === "Escape" && running) { stop(); show(); } });
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => { event.preventDefault(); addPictures(event.dataTransfer.files); });
find("stop").addEventListener("click", () => { stop(); show(); });
find("picture").addEventListener("change", (event) => { addPictures(event.target.files); event.target.value = ""; });
find("new-chat").addEventListener("click", () => { stop(); store.add(); show(); find("entry").focus(); });
find("export-chat").addEventListener("click", download);
find("import-chat").addEventListener("change", async (event) => {
  try { store.import(await event.target.files[0].text()); complain(""); } catch (error) { complain(error.message); }
  event.target.value = "";
  show();
});
show();
if (innerWidth >= 1440) openPanel("chats");
describeModel();
