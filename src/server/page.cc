// A page of static words and one name.
#include "server/page.h"

namespace roost {

namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace

std::string start_page(std::string_view model_id) {
  const std::string state = model_id.empty() ? "<p>The model is being loaded.</p>"
                                             : "<p>It serves <b>" + escaped(model_id) + "</b>.</p>";
  return R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>roost</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:44em;margin:3em auto;padding:0 1em}
pre{background:#8882;padding:1em;overflow:auto}:root{color-scheme:light dark}</style></head>
<body><h1>roost runs here</h1>
)" + state +
         R"(
<p>It answers the OpenAI Chat protocol. Point a client at this address followed by <code>/v1</code>,
or ask from a terminal on this machine:</p>
<pre>curl -s -H 'Content-Type: application/json' -d '{"messages":[{"role":"user","content":"Hello"}]}' \
  http://THIS-ADDRESS/v1/chat/completions</pre>
<p>Also here: <a href="/v1/models">/v1/models</a>, <a href="/health">/health</a>,
<a href="/ready">/ready</a>, <a href="/version">/version</a>.</p>
</body></html>
)";
}

}  // namespace roost
