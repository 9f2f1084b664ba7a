"""What a study consists of, as stored in its folder, and the order in which each participant sees its pairs.

`study.yaml` has the answers and is never served; pictures have random names.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from wcgan.core.config import config_from_dict
from wcgan.core.images import PNG_HEADER, png_size
from wcgan.core.reading import MOST_TEXT as MOST_TEXT_FILE
from wcgan.core.reading import open_inside, parse_yaml
from wcgan.core.terminal import shown
from wcgan.data.decode import reason

FILE = "study.yaml"
LEAST_CHECKS, MOST_CHECKS = 2, 50
MOST_CLASSES, MOST_IMAGES, MOST_PARTICIPANTS, MOST_TEXT = 1000, 64, 100_000, 20_000
SIDES = ("a", "b")
CHOICES = ("1", "2")
TOKEN_BYTES = 24
TITLE = "Which images look more realistic?"
QUESTION = "Which of the two sets of images looks more realistic?"
CONSENT = """You will see pairs of image sets, one pair after another. In each pair, choose the set that looks more \
realistic to you. If in doubt, follow your first impression. A few pairs only check that you are looking.

Your choices and their times are stored, and nothing else: no name, no address, no cookie. Taking part is voluntary. \
You may stop at any time by closing the page, and come back to your own link to continue."""
MOST_PICTURE = 32 << 20  # bytes
_NAME = re.compile(r"[0-9a-f]{32}")
_SECRET = re.compile(r"[A-Za-z0-9_-]{16,64}")


@dataclass(frozen=True)
class Pair:
    """Two pictures of the same class to choose from."""

    label: str
    """The name of the class."""
    a: str
    """The name of the picture, without its suffix."""
    b: str
    check: bool = False
    """An attention check: `a` is intact and `b` is broken."""

    def __post_init__(self) -> None:
        if not isinstance(self.label, str) or len(self.label) > MOST_TEXT:
            raise ValueError(f"the label of a pair must be a text, got {shown(self.label)}")
        for name in (self.a, self.b):
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise ValueError(f"a picture's name must be 32 hexadecimal digits, got {shown(name)}")
        if not isinstance(self.check, bool):
            raise ValueError(f"check must be true or false, got {shown(self.check)}")


@dataclass(frozen=True, kw_only=True)
class Study:
    """Everything about a study except the votes."""

    title: str = TITLE
    question: str = QUESTION
    """The question above every pair."""
    consent: str = CONSENT
    """The text that a participant agrees to; an empty line begins a paragraph."""
    most_participants: int = 1000
    """How many people can join."""
    key: str
    """A random key: it identifies the study in a database, and hides orders and sides from those who know the seed."""
    join: str
    """The secret part of the link by which anyone may join."""
    seed: int
    """Seed for classes, images and checks and, with the key and a participant's token, for orders and sides."""
    a: str
    """The name of the first side in the report."""
    b: str
    images: int
    """Number of images in a set."""
    pairs: tuple[Pair, ...]

    def __post_init__(self) -> None:
        for name in ("key", "join", "a", "b", "title", "question", "consent"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip() or len(value) > MOST_TEXT:
                raise ValueError(f"{name} must be a text of 1 to {MOST_TEXT} characters, got {shown(value)}")
        for name in ("key", "join"):
            if not _SECRET.fullmatch(getattr(self, name)):
                raise ValueError(f"{name} must be 16 to 64 letters, digits, - or _, got {shown(getattr(self, name))}")
        if not isinstance(self.seed, int):
            raise ValueError(f"seed must be a whole number, got {shown(self.seed)}")
        for name, most in (("images", MOST_IMAGES), ("most_participants", MOST_PARTICIPANTS)):
            check_count(name, getattr(self, name), 1, most)
        if not any(not pair.check for pair in self.pairs):
            raise ValueError("pairs must have at least one pair to vote on, got none")
        if len(self.pairs) > MOST_CLASSES + MOST_CHECKS:
            raise ValueError(f"pairs must be at most {MOST_CLASSES + MOST_CHECKS}, got {len(self.pairs)}")
        pictures = [name for pair in self.pairs for name in (pair.a, pair.b)]
        for what, found in (
            ("label", [pair.label for pair in self.pairs if not pair.check]),
            ("picture", pictures),
        ):
            twice = next((name for name, times in Counter(found).items() if times > 1), None)
            if twice is not None:
                raise ValueError(f"every {what} of the pairs must be different, got {shown(twice)} twice")

    @property
    def checks(self) -> frozenset[int]:
        """The numbers of the pairs that are attention checks."""
        return frozenset(number for number, pair in enumerate(self.pairs) if pair.check)


def check_count(name: str, value: object, least: int, most: int) -> None:
    """Raises ValueError for anything but a whole number from `least` to `most`."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, got {shown(value)}")


def picture_file(folder: Path, name: str) -> Path:
    """The file of a picture."""
    return folder / "images" / f"{name}.png"


def study_to_yaml(study: Study) -> str:
    """The content of `study.yaml`."""
    values = asdict(study) | {"pairs": [asdict(pair) for pair in study.pairs]}
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120)


def read_study(folder: Path) -> Study:
    """The study in a folder.

    Raises:
        ValueError: if the folder has no study, or something in it is missing or wrong.
    """
    file = folder / FILE
    if not os.path.lexists(file):
        raise ValueError(f"{folder} is not the folder of a study: it has no {FILE}; make one with `wcgan study create`")
    try:
        with open_inside(folder, FILE, most=MOST_TEXT_FILE) as opened:
            study: Study = config_from_dict(parse_yaml(opened.read().decode("utf-8")), Study)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    for pair in study.pairs:
        for name in (pair.a, pair.b):
            try:
                png_size(read_picture(folder, name, PNG_HEADER))
            except FileNotFoundError:
                raise ValueError(f"{folder} lacks the picture {picture_file(folder, name).name}") from None
            except (OSError, ValueError) as error:
                raise ValueError(f"{picture_file(folder, name)} cannot be used: {reason(error)}") from None
    return study


def read_picture(folder: Path, name: str, most: int = MOST_PICTURE) -> bytes:
    """The first `most` bytes of a picture in the folder of a study; links are not followed.

    Raises:
        OSError: if there is no such file.
        ValueError: if it is a link, not a file, or too large.
    """
    inside = picture_file(Path(), name).parts
    with open_inside(folder, *inside, most=MOST_PICTURE) as file:
        return file.read(most)


@dataclass(frozen=True)
class Trial:
    """A pair as one participant sees it."""

    number: int
    """The place in the participant's order, from 1."""
    pair: int
    """The place in the study, from 0."""
    first: str
    """The side shown first: "a" or "b"."""

    def side(self, choice: str) -> str:
        """The side behind choice "1" or "2".

        Example:
            >>> Trial(number=1, pair=0, first="b").side("2")
            'a'
        """
        start = SIDES.index(self.first)
        return SIDES[(start + CHOICES.index(choice)) % 2]


def new_token() -> str:
    """A participant's secret: 192 random bits, the end of their link."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def token_to_id(token: str) -> str:
    """The id under which a participant's votes are stored; the link cannot be derived from it."""
    return hashlib.sha256(token.encode()).hexdigest()


def study_to_trials(study: Study, token: str) -> list[Trial]:
    """Every pair once, in the participant's own order, with sides drawn for them."""

    def digest(purpose: str, pair: int) -> bytes:
        return hashlib.sha256(f"{study.seed}/{study.key}/{token}/{purpose}/{pair}".encode()).digest()

    order = sorted(range(len(study.pairs)), key=lambda pair: digest("order", pair))
    return [Trial(number, pair, SIDES[digest("side", pair)[0] & 1]) for number, pair in enumerate(order, 1)]
