"""What the README and the pages say: their code runs, their links lead somewhere, and the site needs nobody else."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

import wcgan

ROOT = Path(__file__).parent.parent
PAGES = sorted(ROOT.glob("docs/*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *PAGES]
# Attributes through which a page loads something, by tag; a link that a reader may follow is not among them.
LOADS = {
    "script": "src",
    "link": "href",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
    "object": "data",
}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def python_blocks(path: Path) -> list[tuple[int, str]]:
    """The fenced Python blocks of a page, each with the number of its first line."""
    text = path.read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [(text[: block.start(1)].count("\n"), block[1]) for block in found]


def without_code(path: Path) -> str:
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]+`", lambda code: code[0].replace("[", "").replace("]", ""), text)


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", without_code(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if python_blocks(path)], ids=name)
def test_python_blocks_run_in_order(path: Path) -> None:
    torch.manual_seed(0)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line, code in python_blocks(path):
        exec(compile("\n" * line + code, name(path), "exec"), namespace)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_relative_links_lead_somewhere(path: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(path)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        place = (path.parent / file).resolve() if file else path
        if not place.exists() or (anchor and anchor not in anchors(place)):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_no_formula_is_broken_over_lines_and_left_as_it_is_written(path: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    lines = [re.sub(r"`[^`]*`", "", line).replace("$$", "") for line in text.splitlines()]
    assert not [line for line in lines if line.count("$") % 2]


@pytest.mark.parametrize("path", [ROOT / "README.md", ROOT / "docs/idea.md"], ids=name)
def test_table_has_every_variant(path: Path) -> None:
    row = re.compile(r"^\| `([\w-]+)` \| (?:cholesky|zca|newton|standardize|none)\b", re.MULTILINE)
    assert row.findall(path.read_text(encoding="utf-8")) == list(wcgan.VARIANTS)


class Loaded(HTMLParser):
    """The addresses from which a page loads scripts, styles, fonts, images and frames."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value for key, value in attrs if value and key == LOADS.get(tag)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_site_loads_nothing_from_elsewhere(site: Path) -> None:
    foreign = []
    for page in site.rglob("*.html"):
        loaded = Loaded()
        loaded.feed(page.read_text(encoding="utf-8"))
        assert loaded.addresses, page
        foreign += [address for address in loaded.addresses if re.match(r"(?:[a-z]+:)?//", address)]
    for sheet in site.rglob("*.css"):
        foreign += re.findall(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^)'\"]+)", sheet.read_text(encoding="utf-8"))
    assert not foreign


def test_site_shows_formulas_and_examples_without_a_script(site: Path) -> None:
    api = (site / "api/index.html").read_text(encoding="utf-8")
    assert api.count("<math") > 10
    assert "&gt;&gt;&gt; " in api
    for page in site.rglob("*.html"):
        text = re.sub(r"<(script|style|code)\b.*?</\1>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        left = re.findall(r":math:|\.\. math::|\$\$|\\(?:Sigma|Gamma|bar|hat|top)\b|<blockquote>", text)
        assert not left, page
