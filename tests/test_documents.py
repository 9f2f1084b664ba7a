"""README, guides and pages: code runs, links resolve, lists are complete, and the site is self-contained."""

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.main import get_command

import wcgan
from wcgan.cli import app

ROOT = Path(__file__).parent.parent
PAGES = sorted(ROOT.glob("docs/*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *PAGES]
DOCUMENTED_PACKAGES = (
    "functional",
    "nets",
    "data",
    "runs",
    "paper",
    "train",
    "evaluate",
    "report",
    "reproduce",
    "export",
)
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
    written = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return written | set(re.findall(r"^::: (\S+)$", path.read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if python_blocks(path)], ids=name)
def test_python_blocks_run_in_order(path: Path) -> None:
    torch.manual_seed(0)
    if "torch._dynamo" in sys.modules:  # other tests may have used up the number of times that a layer is compiled
        torch.compiler.reset()
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


def test_a_file_outside_the_site_is_named_at_its_first_link_on_a_page() -> None:
    hook = runpy.run_path(str(ROOT / "docs/_hooks/links_outside.py"))["on_page_markdown"]
    page = "[One](../results/a.md#x), [two](../results/a.md), [three](../results/b.md) and [four](training.md)."
    assert hook(page) == "One (`results/a.md`), two, three (`results/b.md`) and [four](training.md)."
    assert hook("[Five](../results/a.md)") == "Five (`results/a.md`)"


def test_table_of_variants_has_every_variant() -> None:
    row = re.compile(r"^\| `([\w-]+)` \| (?:cholesky|zca|newton|standardize|none)\b", re.MULTILINE)
    assert row.findall((ROOT / "docs/idea.md").read_text(encoding="utf-8")) == list(wcgan.VARIANTS)


def test_readme_names_every_variant_in_their_order_and_is_short() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    listed = text.partition("builds any of the seventeen:")[2].partition("[The idea]")[0]
    assert re.findall(r"`([\w-]+)`", listed) == list(wcgan.VARIANTS)
    assert len(text.splitlines()) <= 150


def test_installation_page_lists_every_extra() -> None:
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[project.optional-dependencies]")[2]
    extras = re.findall(r"^(\w+) = \[", declared.partition("[project.scripts]")[0], re.MULTILINE)
    listed = re.findall(
        r"^\| `wcgan\[(\w+)\]`", (ROOT / "docs/installation.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert listed == [extra for extra in extras if extra not in ("dev", "docs")]


def test_contributing_guide_lists_every_target_of_make() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    listed = re.findall(
        r"^\| `make ([a-z-]+)` \|", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert set(targets) - set(listed) == {"help", "lint", "types", "tests", "clean"}  # parts of `test`, or plain
    assert set(listed) <= set(targets)


def test_walks_name_files_and_functions_that_exist() -> None:
    walks = (
        (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Three walks")[2].partition("## Style")[0]
    )
    for walk in walks.split("### ")[1:]:
        steps = re.findall(r"^\d\. (.+)$", walk, re.MULTILINE)
        assert 1 < len(steps) <= 8
        for step in steps:
            files = re.findall(r"`([\w/]+\.py)`", step)
            source = "".join((ROOT / "src/wcgan" / file).read_text(encoding="utf-8") for file in files)
            for defined in re.findall(r"`(\w+)`", step):
                assert re.search(rf"^(?:def |class )?{defined}\b", source, re.MULTILINE), step


class Loaded(HTMLParser):
    """The addresses from which a page loads scripts, styles, fonts, images and frames."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value for key, value in attrs if value and key == LOADS.get(tag)]


@pytest.fixture(scope="session")
def site(once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    pytest.importorskip("mkdocs")

    def build(folder: Path) -> None:
        # Not --quiet, which hides warnings from --strict.
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder / "site")]
        environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    return once("documents", build) / "site"


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


def test_api_page_has_every_public_class_and_function(site: Path) -> None:
    ids = set(re.findall(r' id="([\w.]+)"', (site / "api/index.html").read_text(encoding="utf-8")))
    shown = {name.rpartition(".")[2] for name in ids}
    for package in (wcgan, *(import_module(f"wcgan.{name}") for name in DOCUMENTED_PACKAGES)):
        called = [name for name in package.__all__ if callable(getattr(package, name))]
        assert [name for name in called if name not in shown] == [], package.__name__


def test_command_line_page_has_every_command_and_option(site: Path) -> None:
    page = unescape(re.sub(r"<[^>]+>", "", (site / "commands/index.html").read_text(encoding="utf-8")))
    sections = dict(zip(*[iter(re.split(r"^(wcgan [a-z ]+)¶$", page, flags=re.MULTILINE)[1:])] * 2, strict=True))
    found = runnable_commands(get_command(app), "wcgan")
    assert list(sections) == list(found)
    for name, command in found.items():
        assert command.help in sections[name]
        for parameter in command.params:
            if parameter.name != "help":
                assert parameter.opts[-1].lower() in sections[name].lower()
                assert parameter.help.replace("`", "") in sections[name]
                assert not isinstance(parameter.show_default, str) or parameter.show_default in sections[name]


def runnable_commands(command: Any, name: str) -> dict[str, Any]:
    if not hasattr(command, "commands"):
        return {name: command}
    found = [runnable_commands(child, f"{name} {key}") for key, child in command.commands.items()]
    return {key: value for part in found for key, value in part.items()}
