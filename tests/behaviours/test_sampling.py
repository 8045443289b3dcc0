"""Seeds, penalties, budgets and probabilities: the same tokens beside others and with drafts."""

import concurrent.futures
import json

import pytest

import dialects
from dialects import CUT

COUNT = "Count from 1 to 20."
CONVERSATIONS = ("chat", "responses", "messages")


@pytest.mark.cells()
def test_S16_streams_with_seeds_are_each_as_alone(talk):
    ask = lambda seed: talk.once([COUNT], temperature=1, seed=seed, max_tokens=24).told()  # noqa: E731
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        together = list(pool.map(ask, range(8)))
    for seed, reply in enumerate(together):
        alone = talk.once([COUNT], temperature=1, seed=seed, max_tokens=24, draft=False, cache_prompt=False)
        assert alone.told() == reply


@pytest.mark.cells(dialects=CONVERSATIONS, thinks=(False,))
def test_S38_without_thinking_all_text_is_content(talk):
    reply = talk.ask([COUNT], max_tokens=100)
    assert reply.content and not reply.reasoning and reply.n_reasoning in (0, None)


@pytest.mark.cells(dialects=CONVERSATIONS, thinks=(True,))
def test_S39_a_reply_cut_in_reasoning_is_reasoning(talk):
    reply = talk.ask([COUNT], max_tokens=5)
    assert reply.reasoning and not reply.content
    assert (reply.n_reply, reply.finish) == (5, CUT[talk.dialect])


@pytest.mark.cells(dialects=CONVERSATIONS, thinks=(True,))
def test_S40_budgets_close_reasoning(talk):
    for budget in (1, 6, 20):
        reply = talk.ask([COUNT], thinking_budget=budget, max_tokens=60)
        if reply.n_reasoning is not None:
            assert reply.n_reasoning <= budget + 4
        assert reply.content
    assert talk.ask([COUNT], thinking_budget=0, enable_thinking=None, max_tokens=30).reasoning == ""
    assert talk.ask([COUNT], thinking_budget=500, max_tokens=8).content == ""


@pytest.mark.cells()
def test_S50_seeds_repeat_and_their_absence_differs(talk):
    # The checkpoint's own top_p would leave one token to choose.
    warm = {"temperature": 3, "top_p": 1, "top_k": 0, "ignore_eos": True, "max_tokens": 24}
    ask = lambda **fields: talk.once(["Tell me a long story."], **warm, **fields)  # noqa: E731
    free = [ask(seed=None) for _ in range(5)]
    assert len({reply.sha for reply in free}) == 5
    assert len({ask(seed=7).sha for _ in range(3)}) == 1
    assert ask(seed=free[0].roost["seed"]).sha == free[0].sha


@pytest.mark.cells()
def test_S51_greedy_and_seeded_beside_others_are_as_alone(talk):
    noise = lambda i: talk.once([f"Repeat: {i} red blue."], temperature=1, seed=i, max_tokens=20)  # noqa: E731
    for fields in ({"temperature": 0}, {"temperature": 1, "seed": 7}):
        alone = talk.once([COUNT], **fields).told()
        with concurrent.futures.ThreadPoolExecutor(9) as pool:
            others = [pool.submit(noise, i) for i in range(8)]
            beside = pool.submit(lambda: talk.once([COUNT], **fields).told()).result()
            assert all(other.result().status == 200 for other in others)
        assert beside == alone


@pytest.mark.cells()
def test_S53_penalties_and_biases_are_the_same_with_drafts(talk):
    reply = talk.ask(["Repeat hello for ever."], frequency_penalty=2, presence_penalty=1.5, repetition_penalty=1.3,
                     min_tokens=30, logit_bias={"11": -100})
    assert reply.n_reply >= 30


@pytest.mark.cells()
def test_S19_what_is_emitted_is_what_is_counted(talk):
    def emitted():
        lines = dialects.request(talk.server.url, "GET", "/metrics")[2].splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("roost_emitted_tokens_total"))
    before = emitted()
    n = sum(talk.once([COUNT], temperature=1, seed=i, max_tokens=20).n_reply for i in range(5))
    assert emitted() - before == n


LOGPROBS = {"chat": {"logprobs": True, "top_logprobs": 5}, "completions": {"logprobs": 5},
            "responses": {"include": ["message.output_text.logprobs"], "top_logprobs": 5}}


def logprobs_of(dialect, body):
    """The logprob of every token of a whole reply, in order."""
    if dialect == "completions":
        return body["choices"][0]["logprobs"]["token_logprobs"]
    if dialect == "chat":
        lists = body["choices"][0]["logprobs"]
        return [entry["logprob"] for key in ("reasoning_content", "content", "tool_calls") for entry in lists[key]]
    return [entry["logprob"] for item in body["output"] if item["type"] == "message"
            for part in item["content"] for entry in part["logprobs"]]


@pytest.mark.cells(dialects=tuple(LOGPROBS))
def test_S52_logprobs_are_those_of_a_plain_run(talk):
    def ask(**fields):
        reply = talk.once([COUNT], stream=False, max_tokens=20, **LOGPROBS[talk.dialect], **fields)
        return reply, logprobs_of(talk.dialect, json.loads(reply.body))
    reply, values = ask()
    _, plain = ask(draft=False, cache_prompt=False)
    if talk.dialect != "responses" or not talk.cell.thinks:  # that protocol has no place for those of reasoning
        assert len(values) == reply.n_reply
    assert values == pytest.approx(plain, abs=1e-5)
    assert talk.once([COUNT], stream=True, max_tokens=20, **LOGPROBS[talk.dialect]).told() == reply.told()
