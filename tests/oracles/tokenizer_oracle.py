#!/usr/bin/env python3
"""Compares roost's text layer with the `tokenizers` package and with Python's own decoder.

    python tests/oracles/tokenizer_oracle.py --roost build/text_tool

--roost is the program text_tool; --tokenizer names another tokenizer.json than Fledgling's; --full
tries every code point in every context, not only in the first two.
Prints one line a comparison, exits 1 at the first difference that is not allowed. A difference is
allowed only where it comes from a code point that one of the two Unicode versions has not assigned;
those are counted and shown by the version that brought them. The package splits by a version newer
than ours (15.0) and normalizes by the old 9.0.
"""

import argparse
import bz2
import codecs
import collections
import json
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

import tokenizers

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
UCD = pathlib.Path("/usr/share/unicode")
SEED = 20260102

SCALARS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]

# What stands around a code point when every one of them is tried.
CONTEXTS = [
    "{}",
    "a{}b",
    " {}",
    "{}\n",
    "1{}2",
    "'{}",
    ".{}!",
    "  {}",
    "{} ",
    "{}\u0301a",
    "e{}",
    "\t{}é",
    "'l{}",
    "\u1100{}\u11a8",
]
N_WHOLE_CONTEXTS = 2  # the first ones are tried with all code points

# The package's normalization knows the code points of the versions below this.
PEER_NORMALIZATION_ENDS = 10.0

# Between two tries: no rule reaches across a digit between line ends.
FENCE = "\n7\n"

SCRIPTS = {
    "latin": (0x41, 0x17F),
    "greek": (0x370, 0x3FF),
    "cyrillic": (0x400, 0x4FF),
    "hebrew": (0x590, 0x5FF),
    "arabic": (0x600, 0x6FF),
    "devanagari": (0x900, 0x97F),
    "tamil": (0xB80, 0xBFF),
    "thai": (0xE00, 0xE7F),
    "tibetan": (0xF00, 0xFFF),
    "jamo": (0x1100, 0x11FF),
    "kana": (0x3040, 0x30FF),
    "han": (0x4E00, 0x9FFF),
    "hangul": (0xAC00, 0xD7A3),
    "marks": (0x300, 0x36F),
    "number_forms": (0x2150, 0x218B),
    "emoji": (0x1F300, 0x1F6FF),
    "mathematical": (0x1D400, 0x1D7FF),
    "punctuation": (0x2000, 0x206F),
    "compatibility": (0xF900, 0xFAFF),
    "variation": (0xFE00, 0xFE0F),
    "ascii": (0x20, 0x7E),
}
SNIPPETS = [
    "def f(x):\n    return x**2  # square\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i]; }\r\n",
    "I'll we've DON'T it's 'sound y'all",
    '{"key": [1, 2.5e-3, null], "b": "\\n"}',
    "\n\n\n",
    "\r\n\r\n  \t",
    "    ",
    "\t\t",
    " \u00a0\u2003 ",
    "\u3000",
    "\u2028",
    "\x85",
    "1234567890",
    "3.14159",
    "१२३",
    "Ⅷ½²",
    "👩‍👩‍👧‍👦🏳️‍🌈",
    "e\u0301\u0323o\u0308",
    "\u1112\u1161\u11ab",
    "ſ'ſ",
    "'S'T'RE'VE'M'LL'D",
    "<|im_start|>user\n",
    "<|im_end|>\n",
    "<think>\n\n</think>\n\n",
    "<tool_call>",
    "<|im_start",
    "|>",
    "<<|im_end|>>",
    "https://example.org/a?b=c&d=%20",
    "C:\\Users\\x",
    "—“quoted”…",
    "!!!???",
    "...\n\n",
    "\u0000\u0007\u007f",
    "\ufeff",
    "\ufffd",
    "naïve café Ångström Å",
    "한국어 텍스트",
    "日本語のテキスト。",
    "中文字符，测试！",
    "Привет, мир!",
    "שָׁלוֹם",
    "مرحبا بالعالم",
    "नमस्ते दुनिया",
]


n_passed = 0


def passed(line):
    global n_passed
    n_passed += 1
    print(line, flush=True)


def fail(message):
    print("DIFFERENT:", message)
    print(f"{n_passed} passed, 1 failed")
    sys.exit(1)


def packed(data):
    return struct.pack("<I", len(data)) + data


def utf8(text):
    return text.encode("utf-8")


class Answers:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self):
        self.at += 4
        return struct.unpack_from("<I", self.data, self.at - 4)[0]

    def numbers(self):
        n = self.number()
        self.at += 4 * n
        return list(struct.unpack_from(f"<{n}I", self.data, self.at - 4 * n))

    def text(self):
        n = self.number()
        self.at += n
        return self.data[self.at - n : self.at]


class Roost:
    def __init__(self, program, tokenizer):
        self.program, self.tokenizer = program, tokenizer

    def ask(self, mode, records):
        command = [self.program, mode] + ([self.tokenizer] if mode in ("encode", "decode") else [])
        result = subprocess.run(command, input=b"".join(records), stdout=subprocess.PIPE)
        if result.returncode != 0:
            fail(f"text_tool {mode} ended with {result.returncode}")
        return Answers(result.stdout)

    def encode(self, texts):
        answers = self.ask("encode", [packed(utf8(t)) for t in texts])
        return [answers.numbers() for _ in texts]

    def decode(self, lists, skip_special):
        records = [struct.pack(f"<II{len(ids)}I", skip_special, len(ids), *ids) for ids in lists]
        answers = self.ask("decode", records)
        return [answers.text().decode("utf-8") for _ in lists]

    def normalize(self, texts):
        answers = self.ask("normalize", [packed(utf8(t)) for t in texts])
        return [answers.text().decode("utf-8") for _ in texts]

    def split(self, texts):
        """The ends of the pieces, in bytes."""
        answers = self.ask("split", [packed(utf8(t)) for t in texts])
        ends = []
        for _ in texts:
            total, each = 0, []
            for n in answers.numbers():
                total += n
                each.append(total)
            ends.append(each)
        return ends


def read_ages():
    """Version that assigned a code point, as far as the system's database knows."""
    ages = {}
    for line in (UCD / "DerivedAge.txt").read_text("utf-8").splitlines():
        match = re.match(r"([0-9A-F]+)(?:\.\.([0-9A-F]+))?\s*; ([0-9.]+)", line)
        if match:
            for c in range(int(match[1], 16), int(match[2] or match[1], 16) + 1):
                ages[c] = match[3]
    return ages


def may_split_differently(code_point, ages):
    return code_point not in ages


def may_normalize_differently(code_point, ages):
    return code_point not in ages or float(ages[code_point]) >= PEER_NORMALIZATION_ENDS


class Choice:
    """The code points tried in a context: all in the first contexts; in the others those that
    are not of the large uniform stretches, and one in 32 of those."""

    def __init__(self, ages, is_full):
        self.is_full = is_full
        uniform = [
            (0x3400, 0x9FFF),
            (0xAC00, 0xD7A3),
            (0xE000, 0xF8FF),
            (0x17000, 0x18CFF),
            (0x20000, 0x10FFFF),
        ]
        self.some = [
            c
            for c in SCALARS
            if c % 32 == 0 or (c in ages and not any(low < c < high for low, high in uniform))
        ]

    def of(self, contexts):
        for i, context in enumerate(contexts):
            yield context, SCALARS if self.is_full or i < N_WHOLE_CONTEXTS else self.some


def report(name, n_compared, differing, ages):
    if not differing:
        passed(f"{name}: {n_compared} compared, equal")
        return
    by_age = collections.Counter(ages.get(c, "unassigned") for c in differing)
    shown = ", ".join(f"{n} of {age}" for age, n in sorted(by_age.items()))
    passed(
        f"{name}: {n_compared} compared, {len(differing)} code points of other Unicode versions"
        f" differ ({shown})"
    )


def split_pattern(path):
    file = json.loads(pathlib.Path(path).read_text("utf-8"))
    return file["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]


def peer_split(splitter, text):
    """The ends of the pieces, in characters."""
    return [end for _, (_, end) in splitter.pre_tokenize_str(text)]


def in_bytes(ends, text):
    total, at, result = 0, 0, []
    for end in ends:
        total += len(utf8(text[at:end]))
        at = end
        result.append(total)
    return result


def check_split_of_code_points(roost, splitter, ages, choice):
    differing, n = set(), 0
    n_run = 512
    for context, tried in choice.of(CONTEXTS):
        runs = [tried[i : i + n_run] for i in range(0, len(tried), n_run)]
        texts = ["".join(context.format(chr(c)) + FENCE for c in run) for run in runs]
        for run, text, ours in zip(runs, texts, roost.split(texts)):
            n += len(run)
            if ours == in_bytes(peer_split(splitter, text), text):
                continue
            alone = [context.format(chr(c)) for c in run]
            for c, one, ends in zip(run, alone, roost.split(alone)):
                if ends != in_bytes(peer_split(splitter, one), one):
                    if not may_split_differently(c, ages):
                        fail(f"split of U+{c:04X} in {context!r}: {ends}")
                    differing.add(c)
    report("split, code points in contexts", n, differing, ages)
    return differing


def check_normalization_of_code_points(roost, ages, choice):
    nfc = tokenizers.normalizers.NFC()
    differing, n = set(), 0
    for context, tried in choice.of(
        ["a\u0323{}\u0302", "\uac00{}", "{}\u0301", "{}", "e{}", "\u1100{}"]
    ):
        texts = [context.format(chr(c)) for c in tried]
        for c, text, ours in zip(tried, texts, roost.normalize(texts)):
            n += 1
            if ours != nfc.normalize_str(text):
                if not may_normalize_differently(c, ages):
                    fail(f"NFC of U+{c:04X} in {context!r}: {ours!r}")
                differing.add(c)
    report("NFC, code points in contexts", n, differing, ages)
    return differing


def check_normalization_tests(roost):
    wanted, sources = [], []
    with bz2.open(UCD / "NormalizationTest.txt.bz2", "rt", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith(("#", "@")) or not line.strip():
                continue
            c = [
                "".join(chr(int(x, 16)) for x in column.split()) for column in line.split(";")[:5]
            ]
            for source, result in [
                (c[0], c[1]),
                (c[1], c[1]),
                (c[2], c[1]),
                (c[3], c[3]),
                (c[4], c[3]),
            ]:
                sources.append(source)
                wanted.append(result)
    for source, result, ours in zip(sources, wanted, roost.normalize(sources)):
        if ours != result:
            fail(f"NFC of {source!r}: {ours!r}, want {result!r}")
    passed(f"NFC, the Unicode test file: {len(sources)} compared, equal")


def check_ids_of_code_points(roost, peer, fence, excepted, ages, choice):
    """Tries are parted by an added token, at which both begin anew."""
    fence_id = peer.token_to_id(fence)

    def parted(ids):
        parts = [[]]
        for i in ids:
            if i == fence_id:
                parts.append([])
            else:
                parts[-1].append(i)
        return parts

    differing, n, n_run = set(), 0, 2048
    for context, tried in choice.of(CONTEXTS):
        runs = [tried[i : i + n_run] for i in range(0, len(tried), n_run)]
        texts = [fence.join(context.format(chr(c)) for c in run) for run in runs]
        for run, text, ours in zip(runs, texts, roost.encode(texts)):
            n += len(run)
            theirs = peer.encode(text, add_special_tokens=False).ids
            if ours == theirs:
                continue
            for c, x, y in zip(run, parted(ours), parted(theirs), strict=True):
                if x != y:
                    if c not in excepted:
                        fail(f"ids of U+{c:04X} in {context!r}: {x}, want {y}")
                    differing.add(c)
    report("ids, code points in contexts", n, differing, ages)


def our_unicode_version():
    source = (ROOT / "src/text/unicode_table.cc").read_text("utf-8")
    return re.search(r'kUnicodeVersion = "([0-9.]+)"', source)[1]


class Writer:
    """Text of all kinds, from a seed, of code points that all versions know alike."""

    def __init__(self, seed, ages):
        self.random = random.Random(seed)
        self.pools = {
            name: [chr(c) for c in range(low, high + 1) if not may_normalize_differently(c, ages)]
            for name, (low, high) in SCRIPTS.items()
        }
        self.all = [chr(c) for c in SCALARS if not may_normalize_differently(c, ages)]

    def word(self):
        r = self.random
        if r.random() < 0.2:
            return "".join(r.choices(self.pools[r.choice(list(self.pools))], k=r.randint(1, 9)))
        if r.random() < 0.1:
            return "".join(
                r.choice(self.pools["latin"]) + r.choice(self.pools["marks"])
                for _ in range(r.randint(1, 4))
            )
        return "".join(r.choices("etaoinshrdlucmfwypvbgkqjxzETAOIN", k=r.randint(1, 9)))

    def mixed(self, n_parts):
        r, parts = self.random, []
        for _ in range(n_parts):
            kind = r.random()
            if kind < 0.55:
                parts.append(self.word())
            elif kind < 0.75:
                parts.append(r.choice(SNIPPETS))
            elif kind < 0.9:
                parts.append(
                    "".join(
                        r.choices(
                            " \n\t\r\u00a0\u2009\u3000",
                            weights=[9, 3, 2, 1, 1, 1, 1],
                            k=r.randint(1, 6),
                        )
                    )
                )
            else:
                parts.append(
                    "".join(
                        r.choices(
                            ".,;:!?-_()[]{}<>|'\"/\\@#$%^&*~`+=0123456789", k=r.randint(1, 6)
                        )
                    )
                )
            if r.random() < 0.6:
                parts.append(" ")
        return "".join(parts)

    def noise(self, n):
        r = self.random
        narrow = r.choice(
            [
                self.all,
                list(" \n\r\t'sStTlLrReEvVdDmM.1a\u0301\u00a0\u017f"),
                list("<|im_start|>endthk/ \n"),
                self.pools["marks"] + list("eao "),
                self.pools["jamo"],
            ]
        )
        return "".join(r.choices(narrow, k=n))

    def texts(self):
        r = self.random
        return (
            [self.mixed(r.randint(1, 60)) for _ in range(6000)]
            + [self.noise(r.randint(0, 40)) for _ in range(20000)]
            + [self.mixed(40000) for _ in range(4)]
            + ["", " ", "\n", "a" * 5000, " " * 5000 + "x", "\u0323\u0301" * 3000]
        )


def check_split_of_texts(roost, splitter, texts):
    for text, ours in zip(texts, roost.split(texts)):
        if ours != in_bytes(peer_split(splitter, text), text):
            fail(f"split of {text[:200]!r}")
    passed(f"split: {len(texts)} texts, equal")


def check_ids_of_texts(name, roost, peer, texts):
    encoded = roost.encode(texts)
    n_ids = 0
    for text, ours, theirs in zip(
        texts, encoded, peer.encode_batch(texts, add_special_tokens=False)
    ):
        n_ids += len(ours)
        if ours != theirs.ids:
            fail(f"{name}: ids of {text[:200]!r}: {ours[:60]}, want {theirs.ids[:60]}")
    nfc = tokenizers.normalizers.NFC()
    for text, back in zip(texts, roost.decode(encoded, False)):
        # Normalization does not reach across an added token, so compare where there is none.
        if "<" not in text and back != nfc.normalize_str(text):
            fail(f"{name}: round trip of {text[:200]!r}")
    passed(f"{name}: {len(texts)} texts, {sum(map(len, texts))} characters, {n_ids} ids, equal")


def check_decoding(roost, peer, seed):
    r = random.Random(seed)
    n_vocabulary = peer.get_vocab_size(with_added_tokens=True)
    first_added = min(i for i, t in peer.get_added_tokens_decoder().items())
    lists = [[r.randrange(n_vocabulary) for _ in range(r.randint(0, 30))] for _ in range(10000)]
    lists += [
        [
            r.choice([r.randrange(256), r.randrange(first_added, n_vocabulary)])
            for _ in range(r.randint(1, 20))
        ]
        for _ in range(10000)
    ]
    for skip in (False, True):
        for ids, ours in zip(lists, roost.decode(lists, skip)):
            theirs = peer.decode(ids, skip_special_tokens=skip)
            if ours != theirs:
                fail(f"decode of {ids}: {ours!r}, want {theirs!r}")
    passed(f"decode, random ids: {2 * len(lists)} compared, equal")


def check_detokenizer(roost, seed):
    r = random.Random(seed)
    good = [
        utf8(chr(c))
        for c in (
            0x41,
            0x7F,
            0x80,
            0x7FF,
            0x800,
            0xFFFF,
            0xD7FF,
            0xE000,
            0x10000,
            0x10FFFF,
            0x1F600,
        )
    ]
    edges = [
        0x41,
        0x7F,
        0x80,
        0x8F,
        0x90,
        0x9F,
        0xA0,
        0xBF,
        0xC0,
        0xC1,
        0xC2,
        0xDF,
        0xE0,
        0xE1,
        0xEC,
        0xED,
        0xEE,
        0xEF,
        0xF0,
        0xF1,
        0xF3,
        0xF4,
        0xF5,
        0xFF,
    ]
    streams = [[bytes([a, b, c])] for a in edges for b in edges for c in edges]
    streams += [
        [bytes([x]) for x in (a, b, c, d)]
        for a in edges[8:]
        for b in edges
        for c in edges
        for d in edges[:12:3]
    ]
    for _ in range(20000):
        data = b"".join(
            r.choice([r.choice(good), bytes([r.choice(edges)]), bytes([r.randrange(256)])])
            for _ in range(r.randint(1, 12))
        )
        cuts = sorted(r.randint(0, len(data)) for _ in range(r.randint(0, 6)))
        streams.append([data[i:j] for i, j in zip([0] + cuts, cuts + [len(data)])])
    answers = roost.ask(
        "detokenize", [struct.pack("<I", len(s)) + b"".join(map(packed, s)) for s in streams]
    )
    for stream in streams:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        wanted = [decoder.decode(chunk) for chunk in stream] + [decoder.decode(b"", True)]
        ours = [answers.text().decode("utf-8") for _ in wanted]
        # Python waits for the third byte of a surrogate before it gives up on it, so there only
        # the sum is equal.
        if re.search(rb"\xed[\xa0-\xbf]", b"".join(stream)):
            ours, wanted = "".join(ours), "".join(wanted)
        if ours != wanted:
            fail(f"detokenizer on {stream}: {ours}, want {wanted}")
    passed(f"detokenizer against the incremental decoder: {len(streams)} streams, equal")


def trained(path, texts, folder, as_strings):
    """A tokenizer with merges in all scripts: Fledgling's own are nearly all of ASCII."""
    peer = tokenizers.Tokenizer.from_file(str(path))
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=6000,
        show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    core = tokenizers.Tokenizer(tokenizers.models.BPE())
    core.normalizer, core.pre_tokenizer, core.decoder = (
        peer.normalizer,
        peer.pre_tokenizer,
        peer.decoder,
    )
    core.train_from_iterator(texts, trainer)
    file = json.loads(core.to_str())
    if as_strings:
        file["model"]["merges"] = [" ".join(pair) for pair in file["model"]["merges"]]
    base = len(file["model"]["vocab"])
    added = json.loads(pathlib.Path(path).read_text("utf-8"))["added_tokens"]
    file["added_tokens"] = [token | {"id": base + i} for i, token in enumerate(added)]
    target = pathlib.Path(folder) / f"trained_{as_strings}.json"
    target.write_text(json.dumps(file, ensure_ascii=False), "utf-8")
    return str(target)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--roost", required=True, help="the program text_tool")
    parser.add_argument("--tokenizer", default=str(ROOT / "models/fledgling/tokenizer.json"))
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--seed", type=int, default=SEED)
    args = parser.parse_args()

    ages = read_ages()
    peer = tokenizers.Tokenizer.from_file(args.tokenizer)
    roost = Roost(args.roost, args.tokenizer)
    splitter = tokenizers.pre_tokenizers.Split(
        tokenizers.Regex(split_pattern(args.tokenizer)), "isolated"
    )
    print(
        f"tokenizers {tokenizers.__version__}, our Unicode {our_unicode_version()},"
        f" seed {args.seed}"
    )

    choice = Choice(ages, args.full)
    excepted = check_split_of_code_points(roost, splitter, ages, choice)
    check_normalization_tests(roost)
    excepted |= check_normalization_of_code_points(roost, ages, choice)
    check_ids_of_code_points(roost, peer, "<|endoftext|>", excepted, ages, choice)
    check_decoding(roost, peer, args.seed)
    check_detokenizer(roost, args.seed)
    texts = Writer(args.seed, ages).texts()
    check_split_of_texts(roost, splitter, texts)
    check_ids_of_texts("ids, given tokenizer", roost, peer, texts)
    with tempfile.TemporaryDirectory() as folder:
        for as_strings in (False, True):
            path = trained(args.tokenizer, texts[:6000], folder, as_strings)
            name = "ids, trained tokenizer, merges as " + ("strings" if as_strings else "pairs")
            own, other = Roost(args.roost, path), tokenizers.Tokenizer.from_file(path)
            check_ids_of_texts(name, own, other, texts[::8] if as_strings else texts)
    print(f"{n_passed} passed, 0 failed")


if __name__ == "__main__":
    main()
