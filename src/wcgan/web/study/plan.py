"""What a participant sees, and in which order: a function of the study and of the participant's token alone."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

from wcgan.web.study.config import SIDES, Study

TOKEN_BYTES = 24
CHOICES = ("1", "2")


@dataclass(frozen=True)
class Trial:
    """A pair as one participant sees it."""

    number: int
    """Its place in the participant's order, from 1 on."""
    pair: int
    """Its place in the study."""
    first: str
    """The side that is shown first: "a" or "b"."""

    def side(self, choice: str) -> str:
        """The side behind choice "1" or "2".

        Example:
            >>> Trial(number=1, pair=0, first="b").side("2")
            'a'
        """
        start = SIDES.index(self.first)
        return SIDES[(start + CHOICES.index(choice)) % 2]


def new_token() -> str:
    """A participant's secret: 192 random bits for a link."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def token_to_id(token: str) -> str:
    """Under which a participant's votes are stored; it does not give the link away."""
    return hashlib.sha256(token.encode()).hexdigest()


def study_to_trials(study: Study, token: str) -> list[Trial]:
    """Every pair once, in the participant's own order and with sides of their own."""

    def digest(purpose: str, pair: int) -> bytes:
        return hashlib.sha256(f"{study.seed}/{study.key}/{token}/{purpose}/{pair}".encode()).digest()

    order = sorted(range(len(study.pairs)), key=lambda pair: digest("order", pair))
    return [Trial(number, pair, SIDES[digest("side", pair)[0] & 1]) for number, pair in enumerate(order, 1)]
