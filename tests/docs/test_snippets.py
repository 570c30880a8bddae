"""Code in README and docs is run, command lines are parsed, links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

LAUNCH = """
import sys
from dicomm.cli.local_ranks import run_ranks
sys.exit(run_ranks(sys.argv[1:], 2))
"""


def snippets(language: str) -> list[tuple[str, str, str]]:
    """(page and number, words after the language, text)."""
    found = []
    for page in PAGES:
        for number, (name, words, text) in enumerate(FENCE.findall(page.read_text())):
            if name == language:
                found.append((f"{page.relative_to(ROOT)}-{number}", words.strip(), text))
    return found


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    ("name", "words", "text"), snippets("python"), ids=[name for name, _, _ in snippets("python")]
)
def test_python_snippets_run(name: str, words: str, text: str, tmp_path: Path) -> None:
    """On two ranks if they ask a launcher, else alone; their port is swapped for one that is free now."""
    if "torch" in words:
        pytest.importorskip("torch")
    script = tmp_path / "snippet.py"
    script.write_text(re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{free_port()}", text))
    launched = "dicomm.init()" in text or "dist.init_process_group(" in text
    prefix = [sys.executable, "-c", LAUNCH] if launched else []
    done = subprocess.run(
        [*prefix, sys.executable, str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_the_first_program_of_the_readme_says_what_it_should(tmp_path: Path) -> None:
    name, _, text = snippets("python")[0]
    assert name.startswith("README.md")
    assert len([line for line in text.splitlines() if line.strip()]) <= 12
    script = tmp_path / "first.py"
    script.write_text(re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{free_port()}", text))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=55, check=True
    )
    found = re.findall(r"rank \d of 4 has \[[\d. ]+\]", done.stdout)  # lines of several ranks may interleave
    assert sorted(found) == [f"rank {r} of 4 has [1.5 1.5 1.5 1.5 1.5]" for r in range(4)]


def commands() -> list[str]:
    """Every `dicomm ...` line of a shell snippet, and every such line quoted in prose."""
    lines = [line.strip() for _, _, text in snippets("sh") for line in text.splitlines()]
    for page in PAGES:
        lines += re.findall(r"`(dicomm [a-z][^`]*)`", page.read_text())
    found = {line.removeprefix("DICOMM_ALGORITHMS=OP:NAME ") for line in lines}
    return sorted(line for line in found if line.startswith("dicomm ") and "OP" not in line)


@pytest.mark.parametrize("line", commands())
def test_commands_in_the_docs_parse(line: str) -> None:
    from dicomm.cli import main

    name, *arguments = shlex.split(line)[1:]
    context = click.Context(main)
    command = main.get_command(context, name)
    assert command is not None, f"there is no `dicomm {name}`"
    command.make_context(name, arguments, parent=context)


def test_links_lead_to_files() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if not target.startswith(("http://", "https://")):
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


def test_the_set_up_commands_are_where_ci_takes_them_from() -> None:
    text = (ROOT / "README.md").read_text()
    for name, last in (("demo", "dicomm demo"), ("test", "python -m pytest")):
        found = re.findall(rf"<!-- set-up: {name} -->\n```sh\n(.*)\n```", text)
        assert len(found) == 1
        assert found[0].endswith(last)
        assert "torch==" in found[0]
