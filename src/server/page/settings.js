// The settings: one table of fields, kept in this browser, turned into members of a request. A group
// begins with the field that names it.

import { currentKey, setKey } from "/app/api.js";
import { element } from "/app/text.js";

const PLACE = "roost-settings";
const FIELDS = [
  { id: "system", label: "System text", kind: "text", group: "Conversation" },
  { id: "temperature", label: "Temperature", kind: "number", group: "Sampling", min: 0, max: 5, step: 0.05 },
  { id: "top_p", label: "Top p", kind: "number", min: 0, max: 1, step: 0.01 },
  { id: "top_k", label: "Top k", kind: "number", min: 0, step: 1 },
  { id: "min_p", label: "Min p", kind: "number", min: 0, max: 1, step: 0.01 },
  { id: "seed", label: "Seed", kind: "number", step: 1, hint: "empty: a random one" },
  { id: "max_tokens", label: "Most tokens", kind: "number", min: 1, step: 1, hint: "empty: what fits" },
  { id: "thinking_token_budget", group: "Thinking", label: "Thinking budget", kind: "number", min: 0, step: 1, hint: "tokens; empty: none" },
  { id: "reasoning_effort", label: "Thinking effort", kind: "choice",
    choices: ["", "none", "minimal", "low", "medium", "high"] },
  { id: "draft", group: "Speed and display", label: "Drafts", kind: "flag", value: true },
  { id: "open_reasoning", label: "Open reasoning while it streams", kind: "flag", value: false },
  { id: "schema", group: "Form and tools", label: "JSON schema of the reply", kind: "code", hint: "empty: free text" },
  { id: "tools", label: "Tools (JSON list)", kind: "code", hint: "as in a Chat request; empty: none" },
];

export class Settings {
  constructor(form) {
    this.inputs = new Map();
    let kept = {};
    try { kept = JSON.parse(localStorage.getItem(PLACE) ?? "{}"); } catch { /* as shipped */ }
    let group;
    const begin = (name) => {
      group = element("fieldset", {}, element("legend", {}, name));
      form.append(group);
    };
    for (const field of FIELDS) {
      if (field.group) begin(field.group);
      group.append(this.make(field, kept[field.id] ?? field.value ?? ""));
    }
    begin("Access");
    group.append(this.makeKey());
    form.addEventListener("input", () => this.save());
    form.addEventListener("submit", (event) => event.preventDefault());
  }
  make(field, value) {
    const id = `set-${field.id}`;
    let input;
    if (field.kind === "flag") {
      input = element("input", { type: "checkbox", id });
      input.checked = value === true;
      this.inputs.set(field.id, input);
      return element("div", { class: "field" }, element("label", { class: "check" }, input, field.label));
    }
    if (field.kind === "number")
      input = element("input", { type: "number", id, min: field.min, max: field.max, step: field.step });
    else if (field.kind === "choice")
      input = element("select", { id },
        ...field.choices.map((c) => element("option", { value: c }, c || "default")));
    else
      input = element("textarea", { id, rows: 3, class: field.kind, spellcheck: field.kind === "text" });
    input.value = value;
    this.inputs.set(field.id, input);
    const isShort = field.kind === "number" || field.kind === "choice";
    return element("div", { class: isShort ? "field half" : "field" }, element("label", { for: id }, field.label), input,
      element("span", { class: "quiet", id: `${id}-hint` }, field.hint ?? ""));
  }
  makeKey() {
    const input = element("input", { type: "password", id: "set-key", autocomplete: "off" });
    input.value = currentKey();
    const keep = element("input", { type: "checkbox" });
    const update = () => setKey(input.value.trim(), keep.checked);
    input.addEventListener("change", update);
    keep.addEventListener("change", update);
    return element("div", { class: "field" }, element("label", { for: "set-key" }, "API key"), input,
      element("label", { class: "check" }, keep, "Keep it in this browser"));
  }
  save() {
    const out = {};
    for (const field of FIELDS) {
      const input = this.inputs.get(field.id);
      out[field.id] = field.kind === "flag" ? input.checked : input.value;
    }
    try { localStorage.setItem(PLACE, JSON.stringify(out)); } catch { /* not kept */ }
  }
  // What the server uses for an empty field.
  showDefaults(defaults) {
    for (const [id, value] of Object.entries(defaults ?? {}))
      this.inputs.get(id)?.setAttribute("placeholder", String(value));
  }
  value(id) {
    const input = this.inputs.get(id);
    return input.type === "checkbox" ? input.checked : input.value.trim();
  }
  // Members of a Chat request; throws what the person must put right.
  members() {
    const out = {};
    for (const field of FIELDS) {
      const value = this.value(field.id);
      if (field.kind === "number" && value !== "") out[field.id] = Number(value);
    }
    if (this.value("reasoning_effort")) out.reasoning_effort = this.value("reasoning_effort");
    if (!this.value("draft")) out.draft = false;
    const parse = (id, what) => {
      try { return JSON.parse(this.value(id)); } catch { throw new Error(`The ${what} is not JSON.`); }
    };
    if (this.value("schema"))
      out.response_format = { type: "json_schema",
        json_schema: { name: "reply", schema: parse("schema", "schema") } };
    if (this.value("tools")) out.tools = parse("tools", "list of tools");
    return out;
  }
}
