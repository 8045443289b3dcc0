"""The page at / in a browser: every request stays on the origin, and what it shows is what was said."""

import json
import re
import shutil

import pytest
from playwright.sync_api import expect, sync_playwright

METRICS = """# TYPE roost_requests_running gauge
roost_requests_running{{model_name="m"}} 2
roost_requests_waiting{{class="0"}} 1
roost_kv_pages_used_ratio 0.25
roost_generation_tokens_total {out}
roost_prompt_tokens_total {out}
roost_prefix_queried_tokens_total {out}
roost_prefix_hit_tokens_total {hit}
roost_draft_rounds_total {rounds}
roost_emitted_tokens_total {out}
"""


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        program = shutil.which("chromium")
        assert program, "Debian's chromium is not installed"
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def page(browser, server):
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.trouble = []
    page.seen = []
    page.on("pageerror", lambda error: page.trouble.append(str(error)))
    page.on("console", lambda message: page.trouble.append(message.text)
            if "Content Security Policy" in message.text else None)
    page.on("request", lambda request: page.seen.append(request.url))
    page.goto(server.url + "/")
    yield page
    assert page.trouble == []
    assert [url for url in page.seen if not url.startswith((server.url + "/", "data:", "blob:"))] == []
    context.close()


def ask(page, text):
    page.get_by_label("Message", exact=True).fill(text)
    page.get_by_role("button", name="Send").click()


def set_field(page, label, value):
    if page.locator("#settings").is_hidden():
        page.get_by_role("button", name="Settings").click()
    page.get_by_label(label, exact=True).fill(value)


def last_reply(page):
    return page.locator(".turn.assistant").last


def without_thinking(page):
    page.get_by_label("Thinking", exact=True).uncheck()
    set_field(page, "Temperature", "0")


def test_the_policy_keeps_everything_on_the_origin(browser, server):
    response = browser.new_context().request.get(server.url + "/")
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
    assert browser.new_context().request.head(server.url + "/").status == 200


def test_a_reply_streams_in_with_its_figures(page, server):
    expect(page.locator("#model")).to_contain_text(server.model)
    without_thinking(page)
    ask(page, "Count from 1 to 40.")
    counted = ", ".join(str(i) for i in range(1, 41))
    expect(last_reply(page).locator(".text")).to_have_text(counted, timeout=30000)
    expect(last_reply(page).locator(".figures")).to_contain_text("eos")
    expect(page.locator("#spoken")).to_contain_text(counted)


def test_reasoning_is_folded(page):
    set_field(page, "Most tokens", "60")
    ask(page, "What is 2 + 3?")
    details = last_reply(page).locator("details.reasoning")
    expect(details.locator("summary")).to_contain_text("Thought", timeout=30000)
    assert details.get_attribute("open") is None


def test_stop_keeps_the_text_and_the_page_goes_on(page):
    without_thinking(page)
    ask(page, "Count from 1 to 40.")
    expect(last_reply(page).locator(".text")).to_contain_text("1, 2", timeout=30000)
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    assert last_reply(page).locator(".text").inner_text().startswith("1, 2")


def test_a_question_is_edited_and_a_reply_regenerated(page):
    without_thinking(page)
    ask(page, "Count from 1 to 5.")
    expect(last_reply(page).locator(".text")).to_have_text("1, 2, 3, 4, 5", timeout=30000)
    last_reply(page).get_by_role("button", name="Regenerate").click()
    expect(last_reply(page).locator(".figures")).to_contain_text("eos", timeout=30000)
    page.locator(".turn.user").get_by_role("button", name="Edit").click()
    assert page.get_by_label("Message", exact=True).input_value() == "Count from 1 to 5."
    assert page.locator(".turn").count() == 0


def test_a_schema_of_the_settings_binds_the_reply(page):
    without_thinking(page)
    set_field(page, "JSON schema of the reply", '{"enum": ["left", "right"]}')
    ask(page, "Where to?")
    expect(last_reply(page).locator(".text")).to_have_text(re.compile('"(left|right)"'), timeout=30000)
    set_field(page, "JSON schema of the reply", '{"not": {}}')
    ask(page, "Where to?")
    expect(last_reply(page).locator(".problem")).to_contain_text("schema.unsupported_keyword")


def event(delta, **more):
    return "data: " + json.dumps({"choices": [{"index": 0, "delta": delta, **more}]}) + "\n\n"


def test_tool_calls_are_shown_and_answered(page):
    arguments = '{"city": "Köln"}'
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}
    stream = event({"tool_calls": [call]})
    stream += event({"tool_calls": [{"index": 0, "function": {"arguments": arguments[:7]}}]})
    stream += event({"tool_calls": [{"index": 0, "function": {"arguments": arguments[7:]}}]})
    bodies = []

    def serve(route):
        bodies.append(json.loads(route.request.post_data))
        text = stream if len(bodies) == 1 else event({"content": "It rains."})
        route.fulfill(content_type="text/event-stream", body=text + "data: [DONE]\n\n")

    page.route("**/v1/chat/completions", serve)
    ask(page, "Weather?")
    expect(last_reply(page).locator("summary")).to_have_text("Tool call: weather")
    expect(last_reply(page).locator("pre")).to_contain_text("Köln")
    page.get_by_label("Result").fill("rain")
    page.get_by_role("button", name="Give result").click()
    expect(last_reply(page).locator(".text")).to_have_text("It rains.")
    assert bodies[1]["messages"][1]["tool_calls"][0]["function"]["arguments"] == arguments
    assert bodies[1]["messages"][2] == {"role": "tool", "tool_call_id": "call_1", "content": "rain"}


def test_text_of_the_model_is_never_markup(page):
    text = "# Title\n\n<img src=x onerror=alert(1)> **bold** `code`\n\n- one\n- two\n\n```\n<b>x</b>\n```\n| a | b |\n|---|---|\n| 1 | 2 |"
    page.route("**/v1/chat/completions", lambda route: route.fulfill(
        content_type="text/event-stream", body=event({"content": text}) + "data: [DONE]\n\n"))
    ask(page, "Markup?")
    reply = last_reply(page)
    expect(reply.locator("pre")).to_have_text("<b>x</b>")
    expect(reply.locator("p")).to_contain_text("<img src=x")
    assert reply.locator("img").count() == 0
    assert [reply.locator(name).count() for name in ("h4", "strong", "li", "td")] == [1, 1, 2, 2]


def test_pictures_are_greyed_until_the_model_reads_them(page, server):
    expect(page.locator("#picture")).to_be_disabled()
    model = {"id": "m", "context_length": 10, "capabilities": {"vision": True}}
    page.route("**/v1/models", lambda route: route.fulfill(json={"data": [model]}))
    page.goto(server.url + "/")
    expect(page.locator("#picture")).to_be_enabled()
    png = bytes.fromhex("89504e470d0a1a0a0000000d4948445200000001000000010806000000"
                        "1f15c4890000000d49444154789c6360000002000001e221bc330000000049454e44ae426082")
    page.locator("#picture").set_input_files({"name": "p.png", "mimeType": "image/png", "buffer": png})
    expect(page.get_by_alt_text("Picture 1")).to_be_visible()
    bodies = []
    page.route("**/v1/chat/completions", lambda route: (bodies.append(json.loads(route.request.post_data)),
               route.fulfill(content_type="text/event-stream", body="data: [DONE]\n\n")))
    ask(page, "What is it?")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    part = bodies[0]["messages"][0]["content"][0]
    assert part["image_url"]["url"].startswith("data:image/png;base64,")


def test_the_engine_is_drawn_from_the_metrics(page):
    counts = {"n": 0}

    def serve(route):
        counts["n"] += 1
        n = counts["n"]
        route.fulfill(content_type="text/plain", body=METRICS.format(out=40 * n, hit=30 * n, rounds=16 * n))

    page.route("**/metrics", serve)
    page.route("**/requests", lambda route: route.fulfill(json={"requests": [{"id": "r1", "phase": "decode"}]}))
    page.get_by_role("button", name="Engine").click()
    charts = page.locator("#charts .chart")
    expect(charts.nth(0)).to_contain_text("2")
    expect(page.get_by_label(re.compile("Accept length: 2.50"))).to_be_visible(timeout=10000)
    expect(page.get_by_label("Prompt tokens reused: 75 %")).to_be_visible()
    expect(page.locator("#requests")).to_contain_text("decode")


def test_it_fits_a_phone_and_the_keyboard_reaches_everything(page):
    page.set_viewport_size({"width": 360, "height": 640})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    for name in ("Chats", "Settings", "Engine"):
        page.get_by_role("button", name=name).click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.get_by_role("button", name=name).click()
    unnamed = page.evaluate("""[...document.querySelectorAll('input, textarea, select, button')]
        .filter((e) => !(e.labels?.length || e.textContent.trim() || e.getAttribute('aria-label')))
        .map((e) => e.outerHTML)""")
    assert unnamed == []
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement !== document.body")


def test_chats_are_kept_in_the_browser_and_travel_as_files(page, tmp_path):
    page.route("**/v1/chat/completions", lambda route: route.fulfill(
        content_type="text/event-stream", body=event({"content": "Hello."}) + "data: [DONE]\n\n"))
    ask(page, "Remember this")
    expect(last_reply(page).locator(".text")).to_have_text("Hello.")
    page.reload()
    expect(last_reply(page).locator(".text")).to_have_text("Hello.")
    page.get_by_role("button", name="Chats").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    path = tmp_path / "chat.json"
    download.value.save_as(path)
    page.locator("#import-chat").set_input_files(path)
    expect(page.locator("#chat-list li")).to_have_count(2)
    page.get_by_role("button", name="Delete Remember this").first.click()
    expect(page.locator("#chat-list li")).to_have_count(1)
