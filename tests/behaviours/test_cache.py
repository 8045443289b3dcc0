"""The prefix cache, seen from outside: what is read twice, and that it changes nothing."""

import concurrent.futures

import pytest

from dialects import as_turn

WORDS = "red green blue apple pear stone river cloud seven eight nine ten".split()
CONVERSATIONS = ("chat", "responses", "messages")
HEADER = 10  # tokens of the header of a reply, at most


def prose(n, salt=0):
    return " ".join(WORDS[(i * 7 + i // 5 + salt) % len(WORDS)] for i in range(n))


@pytest.mark.cells()
def test_S02_prompts_at_once_and_again_are_as_each_alone(talk):
    prompts = [f"Repeat: {prose(5 + i, i)}." for i in range(8)]
    ask = lambda prompt: talk.once([prompt], max_tokens=12).told()  # noqa: E731
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        first = list(pool.map(ask, prompts))
        again = list(pool.map(ask, prompts))
    assert first == again
    alone = [talk.once([prompt], max_tokens=12, cache_prompt=False, draft=False).told() for prompt in prompts]
    assert first == alone


@pytest.mark.cells(dialects=CONVERSATIONS)
def test_S03_what_was_read_is_not_read_again(talk):
    salt = {"cache_salt": "S03" + str(talk.cell)}
    system = {"system": prose(600)}
    first = talk.once([system, prose(300)], **salt)
    again = talk.once([system, prose(300)], **salt)
    assert first.n_cached == 0
    assert again.n_cached >= first.n_prompt - HEADER
    assert again.told() == first.told()
    turns = [system, prose(300), as_turn(first), "And now?"]
    further = talk.ask(turns, **salt)
    once_more = talk.once(turns, **salt)
    assert once_more.n_cached >= further.n_prompt - HEADER
    assert further.n_prompt > first.n_prompt
    other = talk.once([system, "Something else."], **salt)
    assert other.n_cached >= len(talk.prompt_ids([system, "x"])) - 20


@pytest.mark.cells(dialects=CONVERSATIONS)
def test_S04_turns_of_any_length_cost_what_is_new(talk):
    salt = {"cache_salt": "S04" + str(talk.cell)}
    turns, before = [], None
    for n in (12, 700, 30):
        turns.append(prose(n))
        reply = talk.once(turns, max_tokens=8, **salt)
        if before is not None:
            # Whether the reply's own tokens stand in the next prompt is the template's decision.
            assert reply.n_cached >= before.n_prompt - HEADER
        turns.append(as_turn(reply))
        before = reply


@pytest.mark.cells(dialects=CONVERSATIONS, thinks=(False,))
def test_S06_without_thinking_each_turn_goes_on_behind_the_last_question(talk):
    salt = {"cache_salt": "S06" + str(talk.cell)}
    turns, before = [], None
    for i in range(3):
        turns.append(prose(250, i))
        reply = talk.once(turns, max_tokens=8, **salt)
        if before is not None:
            assert reply.n_cached >= before.n_prompt - HEADER
        turns.append(as_turn(reply))
        before = reply


@pytest.mark.cells()
def test_S15_salts_share_nothing(talk):
    name = str(talk.cell)
    first = talk.once([prose(200)], cache_salt=name + "a")
    second = talk.once([prose(200)], cache_salt=name + "b")
    again = talk.once([prose(200)], cache_salt=name + "a")
    assert (first.n_cached, second.n_cached) == (0, 0)
    assert again.n_cached > 0
    assert first.told() == second.told() == again.told()


@pytest.mark.cells()
def test_S11_with_and_without_cache_and_drafts_the_answers_are_four_times_the_same(talk):
    items = [f"What is {i} + {i * 3 % 17}?" for i in range(6)]
    sets = []
    for cache in (True, False):
        for drafts in (True, False):
            ask = lambda item: talk.once([item], max_tokens=10, cache_prompt=cache, draft=drafts).told()  # noqa: E731, B023
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                sets.append(list(pool.map(ask, items + items)))
    assert sets[0] == sets[1] == sets[2] == sets[3]
    assert sets[0][:len(items)] == sets[0][len(items):]


@pytest.mark.cells(dialects=CONVERSATIONS, thinks=(False,))
def test_S14_sub_agents_between_the_turns_cost_a_chat_nothing(talk):
    system = {"system": prose(300)}

    def chat(salt, between):
        turns, cached = [system], []
        for i in range(4):
            turns.append(prose(40, i))
            reply = talk.once(turns, max_tokens=8, cache_salt=salt)
            cached.append(reply.n_cached)
            turns.append(as_turn(reply))
            for j in range(between):
                talk.once([system, prose(60, 100 * i + j)], max_tokens=8, cache_salt=salt)
        return cached

    assert chat(f"S14 {talk.cell} b", 3) == chat(f"S14 {talk.cell} a", 0)
