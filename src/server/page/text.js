// Markdown to elements. Text of the model becomes text nodes only, never markup.

export function element(name, attributes = {}, ...children) {
  const out = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") out.className = value;
    else if (key.startsWith("on")) out.addEventListener(key.slice(2), value);
    else if (value === true) out.setAttribute(key, "");
    else if (value !== false && value !== undefined) out.setAttribute(key, value);
  }
  out.append(...children);
  return out;
}

const INLINE = /`([^`\n]+)`|\*\*([^\n]+?)\*\*|(?<![\w*])\*([^\s*][^\n*]*)\*(?!\w)/g;

function inline(text) {
  const out = [];
  let done = 0;
  for (const match of text.matchAll(INLINE)) {
    out.push(text.slice(done, match.index));
    if (match[1] !== undefined) out.push(element("code", {}, match[1]));
    else if (match[2] !== undefined) out.push(element("strong", {}, match[2]));
    else out.push(element("em", {}, match[3]));
    done = match.index + match[0].length;
  }
  out.push(text.slice(done));
  return out;
}

const cells = (line) => line.replace(/^\s*\||\|\s*$/g, "").split("|").map((cell) => cell.trim());
const isRule = (line) => /^\s*\|?\s*:?-{2,}:?\s*(\|\s*:?-{2,}:?\s*)*\|?\s*$/.test(line);

function table(lines) {
  const head = element("tr", {}, ...cells(lines[0]).map((c) => element("th", {}, ...inline(c))));
  const rows = lines.slice(2).map((line) =>
    element("tr", {}, ...cells(line).map((c) => element("td", {}, ...inline(c)))));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
}

function codeBlock(lines) {
  const code = lines.join("\n");
  const copy = element("button", { type: "button", onclick: () => navigator.clipboard?.writeText(code) },
    "Copy code");
  return element("div", {}, element("pre", { tabindex: 0 }, element("code", {}, code)),
    element("div", { class: "tools" }, copy));
}

// Blocks of a text: code, headings, lists, tables, paragraphs.
export function rendered(text) {
  const out = element("div", { class: "text" });
  const lines = text.split("\n");
  for (let i = 0; i < lines.length;) {
    const line = lines[i];
    const fence = /^\s*(```+|~~~+)/.exec(line)?.[1];
    if (fence) {
      let end = i + 1;
      while (end < lines.length && !lines[end].trim().startsWith(fence)) ++end;
      out.append(codeBlock(lines.slice(i + 1, end)));
      i = end + 1;
    } else if (/^#{1,6} /.test(line)) {
      out.append(element("h4", {}, ...inline(line.replace(/^#+ /, ""))));
      ++i;
    } else if (/^\s*([-*+]|\d+[.)]) /.test(line)) {
      const list = element(/^\s*\d/.test(line) ? "ol" : "ul");
      for (; i < lines.length && /^\s*([-*+]|\d+[.)]) /.test(lines[i]); ++i)
        list.append(element("li", {}, ...inline(lines[i].replace(/^\s*([-*+]|\d+[.)]) /, ""))));
      out.append(list);
    } else if (line.includes("|") && i + 1 < lines.length && isRule(lines[i + 1])) {
      const begin = i;
      while (i < lines.length && lines[i].includes("|")) ++i;
      out.append(table(lines.slice(begin, i)));
    } else if (line.trim() === "") {
      ++i;
    } else {
      const begin = i++;
      while (i < lines.length && lines[i].trim() !== "" && !/^\s*(```|~~~|#{1,6} |[-*+] |\d+[.)] )/.test(lines[i])) ++i;
      out.append(element("p", {}, ...inline(lines.slice(begin, i).join("\n"))));
    }
  }
  return out;
}
