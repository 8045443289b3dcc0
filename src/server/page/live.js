// The engine as small charts, from /metrics once a second, and the requests from /requests.

import { getJson, getText, parseMetrics, post } from "/app/api.js";
import { element } from "/app/text.js";

const POINTS = 60;
const SVG = "http://www.w3.org/2000/svg";

class Chart {
  constructor(title, print, floor, isWide = false) {
    this.values = [];
    this.print = print;
    this.floor = floor;
    const shape = (name) => document.createElementNS(SVG, name);
    this.line = shape("polyline");
    this.area = shape("polygon");
    this.svg = shape("svg");
    this.svg.setAttribute("viewBox", `0 0 ${POINTS - 1} 30`);
    this.svg.setAttribute("preserveAspectRatio", "none");
    this.svg.setAttribute("role", "img");
    this.svg.append(this.area, this.line);
    this.value = element("span", { class: "value" }, "–");
    this.title = title;
    this.root = element("div", { class: isWide ? "chart wide" : "chart" },
      element("span", { class: "name" }, title), this.value, this.svg);
  }
  push(value) {
    this.values.push(value);
    if (this.values.length > POINTS) this.values.shift();
    const top = Math.max(this.floor, ...this.values.filter((v) => v !== null)) || 1;
    const first = POINTS - this.values.length;
    const points = this.values.map((v, i) => `${first + i},${(29 - 27 * (v ?? 0) / top).toFixed(2)}`).join(" ");
    this.line.setAttribute("points", points);
    this.area.setAttribute("points", `${first},30 ${points} ${POINTS - 1},30`);
    const text = value === null ? "–" : this.print(value);
    this.value.textContent = text;
    this.svg.setAttribute("aria-label", `${this.title}: ${text}`);
  }
}

const whole = (v) => String(Math.round(v));
const oneDigit = (v) => v >= 100 ? Math.round(v).toLocaleString() : v.toFixed(1);
const percent = (v) => `${Math.round(100 * v)} %`;
const bytes = (n) => n >= 1e9 ? `${(n / 1e9).toFixed(1)} GB` : `${Math.round(n / 1e6)} MB`;

export class Live {
  constructor({ charts, state, requests, totals }) {
    this.state = state;
    this.requests = requests;
    this.totals = totals;
    this.before = null;
    this.timer = null;
    this.charts = {
      running: new Chart("Streams running", whole, 1),
      waiting: new Chart("Waiting", whole, 1),
      out: new Chart("Tokens out per second", oneDigit, 1, true),
      in: new Chart("Prompt tokens per second", oneDigit, 1, true),
      reuse: new Chart("Prompt tokens reused", percent, 1),
      accept: new Chart("Accept length", (v) => v.toFixed(2), 1),
      pages: new Chart("Pages in use", percent, 1, true),
    };
    charts.append(...Object.values(this.charts).map((chart) => chart.root));
  }
  start() {
    if (this.timer !== null) return;
    this.tick();
    this.timer = setInterval(() => this.tick(), 1000);
  }
  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.before = null;
  }
  async tick() {
    if (document.hidden) return;
    let list = {};
    try {
      list = await getJson("/requests");
      this.showRequests(list);
    } catch {
      this.requests.replaceChildren(element("li", { class: "quiet" }, "The list is not offered."));
    }
    try {
      const sums = parseMetrics(await getText("/metrics"));
      // What is written right now is in the list alone: the metrics count replies at their end.
      if (list.generated_tokens !== undefined) sums.set("roost_generation_tokens_total", list.generated_tokens);
      if (list.prompt_tokens !== undefined) sums.set("roost_prompt_tokens_total", list.prompt_tokens);
      this.show(sums, performance.now());
      this.showTotals(sums);
      this.state.textContent = "";
    } catch (error) {
      this.before = null;
      this.state.textContent = `No figures: ${error.message}`;
    }
  }
  showTotals(sums) {
    const get = (name) => sums.get(`roost_${name}`) ?? 0;
    const asked = get("prefix_queried_tokens_total");
    const rows = [
      ["Tokens out", get("generation_tokens_total").toLocaleString()],
      ["Prompt tokens computed", get("prompt_tokens_total").toLocaleString()],
      ["Prompt tokens reused", asked ? percent(get("prefix_hit_tokens_total") / asked) : "–"],
      ["States kept", get("snapshots").toLocaleString()],
      ["Memory planned", bytes(get("memory_bytes"))],
      ["Connections", get("connections").toLocaleString()],
    ];
    this.totals.replaceChildren(...rows.flatMap(([name, value]) =>
      [element("dt", {}, name), element("dd", {}, value)]));
  }
  show(sums, now) {
    const get = (name) => sums.get(`roost_${name}`) ?? null;
    const c = this.charts;
    c.running.push(get("requests_running"));
    c.waiting.push(get("requests_waiting"));
    c.pages.push(get("kv_pages_used_ratio"));
    const before = this.before;
    this.before = { sums, now };
    if (!before) return;
    const seconds = (now - before.now) / 1000;
    const grown = (name) => {
      const value = get(name);
      const old = before.sums.get(`roost_${name}`);
      return value === null || old === undefined ? null : Math.max(0, value - old);
    };
    const rate = (n) => n === null ? null : n / seconds;
    c.out.push(rate(grown("generation_tokens_total")));
    c.in.push(rate(grown("prompt_tokens_total")));
    const asked = grown("prefix_queried_tokens_total");
    c.reuse.push(asked ? grown("prefix_hit_tokens_total") / asked : null);
    const rounds = (grown("draft_rounds_total") ?? 0) + (grown("plain_rounds_total") ?? 0);
    c.accept.push(rounds ? grown("emitted_tokens_total") / rounds : null);
  }
  showRequests(list) {
    const rows = list.requests ?? [];
    this.requests.replaceChildren(...rows.map((row) => {
      const seconds = (row.age_ms ?? 0) / 1000;
      const parts = row.phase === "prefill"
        ? [`${row.prompt_tokens_done ?? 0} of ${row.prompt_tokens} read`]
        : [`${row.completion_tokens ?? 0} tokens`];
      if (row.tokens_per_second) parts.push(`${oneDigit(row.tokens_per_second)}/s`);
      parts.push(`${seconds.toFixed(0)} s`);
      if (row.key_label) parts.push(row.key_label);
      return element("li", {}, element("span", { class: "badge" }, row.phase ?? ""),
        element("span", { class: "what" }, parts.join(" · ")),
        element("button", { type: "button", "aria-label": `Cancel request ${row.id}`,
          onclick: () => post(`/requests/${encodeURIComponent(row.id)}/cancel`) }, "Cancel"));
    }));
    if (rows.length === 0) this.requests.append(element("li", { class: "quiet" }, "None right now"));
  }
}
