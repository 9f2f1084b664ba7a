"""Damaged YAML and JSON: read as the libraries themselves read it, or refused with a short sentence."""

import json
import random

import yaml
from tests.attack.tally import quick_and_long
from tests.mutations import mutated

from wcgan.core.reading import parse_json, parse_yaml

YAML = [
    b"a: 1\nb: [1.5, x, null, true, .inf, -184]\nc:\n  d: 'text'\n  e: 2020-01-01\n  f: |\n    two\n    lines\n",
    b'generator:\n  widths: [64, 32]\n  normalization: cWC\n  options: {eps: 1e-3}\n"key": "\\u00e4"\n',
    b"- &a 1\n- *a\n- !!int 3\n- <<: {x: 1}\n- 0x1F\n- 1:30\n- ~\n",
]
JSON = [
    b'{"kind": "train", "iteration": 10, "loss/generator": -0.25, "list": [1, 2.5e3, null, true]}',
    b'{"a": {"b": {"c": "\\u00e4\\n", "d": []}}, "big": 18446744073709551615, "nan": NaN, "inf": -Infinity}',
]
TOKENS = {
    "yaml": [
        "a: ",
        "- ",
        "? ",
        "&a ",
        "*a",
        "!!str ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "'",
        '"',
        "\n",
        "  ",
        "#",
        "|\n",
        "1_0",
    ],
    "json": ["{", "}", "[", "]", ",", ":", '"a"', "1", "-", "e9", "null", "NaN", "\\u", '"', " ", "\n", "0" * 70],
}


def draw(originals, tokens, chance):
    """A damaged text, or tokens in any order."""
    if chance.random() < 0.7:
        return mutated(chance.choice(originals), chance)
    return "".join(chance.choices(tokens, k=chance.randrange(1, 60))).encode()


def hold_against(attack, cases, originals, tokens, read, independent):
    chance, taken = random.Random(0), 0
    for _ in range(cases):
        data = draw(originals, tokens, chance)
        with attack.case():
            try:
                found = read(data)
            except ValueError as error:
                short = len(str(error)) < 400
            else:
                short, taken = True, taken + 1
                assert repr(found) == repr(independent(data))  # as text: NaN differs from itself
            assert short
    assert 0 < taken < cases


@quick_and_long(1_000, 10_000)
def test_yaml(attack, cases):
    hold_against(
        attack, cases, YAML, TOKENS["yaml"], lambda data: parse_yaml(data.decode()), lambda data: yaml.safe_load(data)
    )


@quick_and_long(1_000, 20_000)
def test_json(attack, cases):
    hold_against(attack, cases, JSON, TOKENS["json"], parse_json, json.loads)
