// The engine as small charts, from /metrics once a second, and the requests from /requests.

import { getJson, getText, parseMetrics, post } from "/app/api.js";
import { element } from "/app/text.js";

const POINTS = 60;
const SVG = "http://www.w3.org/2000/svg";

class Chart {
  constructor(title, print, floor) {
    this.values = [];
    this.print = print;
    this.floor = floor;
    this.line = document.createElementNS(SVG, "polyline");
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("viewBox", `0 0 ${POINTS - 1} 30`);
    this.svg.setAttribute("preserveAspectRatio", "none");
    this.svg.setAttribute("role", "img");
    this.svg.append(this.line);
    this.value = element("span", { class: "value" }, "–");
    this.title = title;
    this.root = element("div", { class: "chart" }, this.value, element("span", {}, title), this.svg);
  }
  push(value) {
    this.values.push(value);
    if (this.values.length > POINTS) this.values.shift();
    const top = Math.max(this.floor, ...this.values.filter((v) => v !== null)) || 1;
    const first = POINTS - this.values.length;
    this.line.setAttribute("points", this.values
      .map((v, i) => `${first + i},${(28 - 26 * (v ?? 0) / top).toFixed(2)}`).join(" "));
    const text = value === null ? "–" : this.print(value);
    this.value.textContent = text;
    this.svg.setAttribute("aria-label", `${this.title}: ${text}`);
  }
}

const whole = (v) => String(Math.round(v));
const oneDigit = (v) => v.toFixed(1);
const percent = (v) => `${Math.round(100 * v)} %`;

export class Live {
  constructor({ charts, state, requests }) {
    this.state = state;
    this.requests = requests;
    this.before = null;
    this.timer = null;
    this.charts = {
      running: new Chart("Streams running", whole, 1),
      waiting: new Chart("Waiting", whole, 1),
      out: new Chart("Tokens out per second", oneDigit, 1),
      in: new Chart("Prompt tokens per second", oneDigit, 1),
      pages: new Chart("Pages in use", percent, 1),
      reuse: new Chart("Prompt tokens reused", percent, 1),
      accept: new Chart("Accept length", (v) => v.toFixed(2), 1),
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
    try {
      this.show(parseMetrics(await getText("/metrics")), performance.now());
      this.state.textContent = "";
    } catch (error) {
      this.before = null;
      this.state.textContent = `No figures: ${error.message}`;
    }
    try {
      this.showRequests(await getJson("/requests"));
    } catch {
      this.requests.replaceChildren(element("li", { class: "quiet" }, "The list is not offered."));
    }
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
    const rows = list.requests ?? list.data ?? (Array.isArray(list) ? list : []);
    this.requests.replaceChildren(...rows.map((row) => element("li", {},
      `${row.phase ?? ""} · ${row.completion_tokens ?? row.generated ?? 0} tokens `,
      element("button", { type: "button", onclick: () => post(`/requests/${encodeURIComponent(row.id)}/cancel`) },
        "Cancel"))));
    if (rows.length === 0) this.requests.append(element("li", { class: "quiet" }, "none"));
  }
}
