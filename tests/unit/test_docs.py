"""The documentation and the frame, held against the code: what the pages show must exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
import unicodedata
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

import dpcrowd
from project_support import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SCHEMES = {
    *("non-private", "central", "fast", "dpcrowd", "dpcrowd-w", "dpcrowd-plus", "rescuedp", "bd", "ba", "pegasus"),
    *("uniform", "sample", "dfast", "drescuedp", "dbd", "dba", "dpegasus", "duniform", "dsample", "relay", "past"),
    *("kalman-uniform", "dkalman-uniform"),
}


with (ROOT / "examples" / "plugin" / "pyproject.toml").open("rb") as _file:
    EXAMPLES = set(tomllib.load(_file)["project"]["entry-points"]["dpcrowd.schemes"])


def _command_line(*arguments: str) -> str:
    code = "from dpcrowd.cli.main import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    return done.stdout


def _shown_commands() -> list[list[str]]:
    """The words of every `dpcrowd simulate ...` line in the pages and in the Makefile."""
    lines = []
    for page in [*PAGES, ROOT / "Makefile"]:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        lines += re.findall(r"^\s+(?:\S*/)?dpcrowd simulate (--[^#\n]+)", text, flags=re.MULTILINE)
    return [line.split() for line in lines]


def test_git_ignores_what_the_commands_of_the_readme_write() -> None:
    """Whoever tries them in a clone would find their files among the changes, and commit keys of a trial network.

    Only at the root: the package has a folder called report.
    """
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    written = set(re.findall(r"^    dpcrowd .*?(?:--out|--toml|init) ([A-Za-z./]+)", readme, flags=re.MULTILINE))
    assert {"model.toml", "plan.toml", "NET"} <= written
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    for name in {*written, "report"}:  # where reproduce writes without --out
        assert (f"/{name}" if "." in name else f"/{name}/") in lines, name


@pytest.mark.slow
def test_options_that_the_pages_show_exist() -> None:
    """A renamed option would leave readers with commands that fail."""
    shown = {word for words in _shown_commands() for word in words if word.startswith("--")}
    assert len(shown) > 5
    known = set(re.findall(r"--[a-z][a-z0-9-]*", _command_line("simulate", "--help")))
    assert shown <= known, f"shown but unknown: {sorted(shown - known)}"


@pytest.mark.slow
def test_schemes_that_the_pages_show_exist_and_all_are_described() -> None:
    """A scheme without a description, or a described one that is gone, would go unnoticed."""
    printed = _command_line("schemes")
    page = (ROOT / "docs" / "schemes.md").read_text(encoding="utf-8")
    for name in sorted(SCHEMES):
        assert re.search(rf"(?<![\w-]){name}(?![\w-])", printed), f"`dpcrowd schemes` does not list {name}"
        assert f"`{name}`" in page, f"docs/schemes.md does not describe {name}"
    for words in _shown_commands():
        named = words[words.index("--scheme") + 1].split(",")
        assert set(named) <= SCHEMES | EXAMPLES, f"unknown scheme in: dpcrowd simulate {' '.join(words)}"


@pytest.mark.parametrize("kind", [dpcrowd.Plan, dpcrowd.Reading, dpcrowd.Release], ids=lambda kind: kind.__name__)
def test_the_fields_that_a_scheme_returns_are_all_described(kind: type) -> None:
    """An author of a scheme fills them in by this table: one that is missing, or has another name, costs an evening."""
    page = (ROOT / "docs" / "write-a-scheme.md").read_text(encoding="utf-8")
    table = page.split(f"| field of `{kind.__name__}` |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \|.*\| (\*optional\*)?.*\|$", table, flags=re.MULTILINE)
    expected = [(field.name, "" if field.default is MISSING else "*optional*") for field in fields(kind)]
    assert rows == expected


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_are_valid_python(page: Path) -> None:
    """A block with a slip of the pen would fail at the reader's first paste."""
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL):
        compile(block, str(page), "exec")


def test_the_example_of_relays_prediction_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever plans a network starts from this example; one that does not run, or a wrong number, would stop them."""
    page = (ROOT / "docs" / "relay.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    exec(compile(block, "docs/relay.md", "exec"), {})
    assert f"It prints `{capsys.readouterr().out.strip()}`" in page


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    """MkDocs checks the links below docs/ only; these two pages lie outside."""
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (ROOT / target).exists(), f"{page.name} links to {target}, which does not exist"


def _anchors(page: Path) -> tuple[set[str], set[str]]:
    """The anchors of the headings of a page, as GitHub makes them and as MkDocs does."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    github, mkdocs = set(), set()
    seen: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", text, flags=re.MULTILINE):
        plain = re.sub(r"<[^>]+>", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)).strip()
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        github.add(slug if slug not in seen else f"{slug}-{seen[slug]}")
        seen[slug] = seen.get(slug, 0) + 1
        ascii_only = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
        mkdocs.add(re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", ascii_only).strip().lower()))
    ids = set(re.findall(r'<a id="([^"]+)"', text))
    return github | ids, mkdocs | ids


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_anchors_of_links_exist_on_github_and_in_the_built_pages(page: Path) -> None:
    """The two make different anchors of a heading with an epsilon or an ampersand; `make docs` checks its own only."""
    for path, anchor in re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", page.read_text(encoding="utf-8")):
        target = page if not path else (page.parent / path).resolve()
        if target.suffix != ".md":
            continue
        github, mkdocs = _anchors(target)
        assert anchor in github, f"{page.name} links to {path}#{anchor}, which GitHub does not have"
        assert anchor in mkdocs, f"{page.name} links to {path}#{anchor}, which the built pages do not have"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_no_place_waits_for_figures(page: Path) -> None:
    """What stands for figures that were still being measured reads like a name, and nobody knows of what."""
    text = re.sub(
        r"^```.*?^```|^    .*?$|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    assert not re.findall(r"\b[A-Z]{3,}(?:_[A-Z]{2,})+\b", text)


def test_pins_cover_every_dependency_and_name_no_address() -> None:
    """An unpinned dependency breaks `--require-hashes`; an address would tie everybody to one package index."""
    pins = (ROOT / "requirements-dev.txt").read_text(encoding="utf-8")
    assert "://" not in pins
    pinned = set(re.findall(r"^([a-z0-9-]+)==", pins, flags=re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    # The demo's extra is one old package of data, which no test needs and which would have to be built.
    groups = {name: group for name, group in project["optional-dependencies"].items() if name != "demo"}
    extras = [needed for group in groups.values() for needed in group]
    names = {re.split(r"[\[<>=~!; ]", needed)[0] for needed in [*project["dependencies"], *extras]} - {"dpcrowd"}
    assert len(names) > 15
    assert names <= pinned, f"not pinned (run `make pins`): {sorted(names - pinned)}"


@pytest.mark.slow
def test_the_planned_network_of_the_readme_can_be_made_as_printed(tmp_path: Path) -> None:
    """The plan that it showed had no links, and `dpcrowd init` refused it."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("### Run a network")[1].split("\n## ")[0]
    lines = re.findall(r"^    dpcrowd ((?:plan|init NET --plan) .+)$", section, flags=re.MULTILINE)
    assert [line.split()[0] for line in lines] == ["plan", "init"]
    code = "import sys; from dpcrowd.cli.main import main; sys.exit(main())"
    for line in lines:
        command = [sys.executable, "-c", code, *shlex.split(line, comments=True)]
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "NET" / "network.toml").exists()


@pytest.mark.slow
def test_the_recommended_way_of_the_quickstart_runs_as_printed(tmp_path: Path) -> None:
    """The first commands that a reader copies have to work one after another, and give the figures of the page."""
    page = (ROOT / "docs" / "quickstart.md").read_text(encoding="utf-8")
    section = page.split("## With what is known beforehand")[1].split("\n## ")[0]
    lines = re.findall(r"^    dpcrowd (.+)$", section, flags=re.MULTILINE)
    assert [line.split()[0] for line in lines] == ["data", "fit", "simulate"]
    code = "import sys; from dpcrowd.cli.main import main; sys.exit(main())"
    for line in lines:
        command = [sys.executable, "-c", code, *shlex.split(line, comments=True)]
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    errors = {words[0]: float(words[1]) for words in map(str.split, done.stdout.splitlines()[1:3])}
    assert errors == {"relay": pytest.approx(0.02, abs=0.005), "past": pytest.approx(0.06, abs=0.02)}
    assert "note: in-sample" not in done.stdout
    assert "note: relay: " in done.stdout
