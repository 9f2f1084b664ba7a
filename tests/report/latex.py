"""LaTeX as a strict reader takes it: what does not balance, or is not escaped, is an error."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_TOKEN = re.compile(r"\\[A-Za-z]+\*?|\\.|%[^\n]*|.", re.DOTALL)
_KNOWN = {
    *(
        "begin",
        "end",
        "centering",
        "caption",
        "scriptsize",
        "setlength",
        "tabcolsep",
        "toprule",
        "midrule",
        "bottomrule",
    ),
    *("cmidrule", "multicolumn", "par", "medskip", "pm", "infty", "times", "textbackslash", "textasciitilde"),
    *("textasciicircum", "textless", "textgreater", "textbar", "textasciigrave"),
}


@dataclass
class Tabular:
    columns: int
    rows: list[list[str]] = field(default_factory=list)
    """Cells as they are written; one over several columns is repeated."""


def read_latex(source: str) -> list[Tabular]:
    """The tables of a document without preamble; an assertion fails where LaTeX would stop or print something else."""
    tokens = [token for token in _TOKEN.findall(source) if not token.startswith("%")]
    environments: list[str] = []
    depth, math = 0, False
    for place, token in enumerate(tokens):
        if token == "{":
            depth += 1
        elif token == "}":
            depth -= 1
            assert depth >= 0, "a brace closes nothing"
        elif token == "$":
            math = not math
        elif token in ("\\begin", "\\end"):
            name = "".join(tokens[place + 2 : tokens.index("}", place)])
            if token == "\\begin":
                environments.append(name)
            else:
                assert environments.pop() == name
        elif token == "&":
            assert environments[-1] == "tabular", "an alignment sign outside of a table"
            assert not math
        elif token in ("#", "_", "^", "~", "\\"):
            raise AssertionError(f"{token} is not escaped")
        elif re.fullmatch(r"\\[A-Za-z]+\*?", token):
            assert token[1:] in _KNOWN, f"{token} is no known command"
        assert token.isascii() or token.isalpha(), f"{token!r} is not for every font"
    assert (depth, math, environments) == (0, False, [])
    return [
        _read_tabular(*found) for found in re.findall(r"\\begin{tabular}{(\w+)}\n(.*?)\\end{tabular}", source, re.S)
    ]


def _read_tabular(columns: str, body: str) -> Tabular:
    table = Tabular(len(columns))
    body = re.sub(r"\\(?:toprule|midrule|bottomrule|cmidrule\(lr\){\d+-\d+})", "", body)
    for line in re.split(r"\\\\", body)[:-1]:
        assert not line.lstrip().startswith(("[", "*")), "the end of the row before takes this for its own"
        cells = [cell.strip() for cell in re.split(r"(?<!\\)&", line)]
        row = []
        for cell in cells:
            wide = re.fullmatch(r"\\multicolumn{(\d+)}{c}{(.*)}", cell)
            row += [wide[2]] * int(wide[1]) if wide else [cell]
        assert len(row) == table.columns, f"{len(row)} cells in {table.columns} columns: {line}"
        table.rows.append(row)
    return table
