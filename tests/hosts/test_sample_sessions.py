"""The bundled sample sessions are genuine in shape and carry nothing of anybody's machine."""

import json
import re
from pathlib import Path
from typing import cast

import pytest

from tests.hosts.agents import ROOT
from tests.hosts.harbor import CLAUDE_SESSION, PI_SESSION, Step
from tests.hosts.mock_model import Json, strings
from tests.hosts.record_sample import neutral_claude, neutral_pi, neutral_text

SAMPLES = {"pi": PI_SESSION, "claude": CLAUDE_SESSION}


def _lines(name: str) -> list[Json]:
    text = (ROOT / f"ops/sample/{name}-session.jsonl").read_text("utf-8")
    return [cast("Json", json.loads(line)) for line in text.splitlines()]


def _prompts(name: str) -> list[str]:
    said = []
    for line in _lines(name):
        message = cast("Json", line.get("message") or {})
        content = message.get("content")
        if message.get("role") != "user":
            continue
        if isinstance(content, str):
            said.append(content)
        else:
            blocks = cast("list[Json]", content)
            said += [str(block["text"]) for block in blocks if block.get("type") == "text"]
    return said


@pytest.mark.parametrize(("name", "steps"), SAMPLES.items())
def test_every_prompt_of_the_script_is_in_the_transcript(
    name: str, steps: tuple[Step, ...]
) -> None:
    """The recording holds the whole conversation, in order, and no other human words."""
    assert _prompts(name) == [step.says for step in steps]


@pytest.mark.parametrize("name", SAMPLES)
def test_the_transcript_names_no_place_outside_the_fictional_home(name: str) -> None:
    """Absolute paths lead to /home/dev or nowhere; temporary and root folders never appear."""
    found = [
        path
        for text in strings(_lines(name))
        for path in re.findall(
            r"(?<![\w.~/:])/(?:tmp|work|root|home|var|mnt|Users)/[^\s\"']*", text
        )
        if not path.startswith("/home/dev/")
    ]

    assert found == []


@pytest.mark.parametrize("name", SAMPLES)
def test_the_transcript_holds_a_failure_and_its_repair(name: str) -> None:
    """The same command fails, then passes: a failure whose cause was found."""
    text = json.dumps([line["message"] for line in _lines(name) if "message" in line])

    assert text.index("ECONNREFUSED") < text.index("41 passed")


def test_the_agents_own_words_are_taken_out() -> None:
    """A system entry loses its text, a tool its description, a snapshot its content."""
    section, tool = "how the agent works", "what the tool does"
    system: Json = {"role": "system", "content": section, "sections": {"rules": section}}
    system["toolsAdded"] = [{"name": "read", "description": tool, "parameters": {"a": 1}}]
    snapshot: Json = {
        "type": "attachment",
        "uuid": "1",
        "attachment": {"type": "p", "text": section},
    }
    meta: Json = {"type": "user", "isMeta": True, "message": {"content": section}}

    kept = json.dumps(
        [
            neutral_pi({"type": "message", "message": system}),
            neutral_claude(snapshot),
            neutral_claude(meta),
        ]
    )

    assert section not in kept
    assert tool not in kept
    assert '"read"' in kept


def test_paths_are_renamed_in_every_spelling() -> None:
    """A folder is renamed as a path and as the dashed name the agents derive from it."""
    base = Path("/x/md_1")

    text = neutral_text("/x/md_1/harbor/a --x-md-1-harbor-- /x/md_1/home/.pi", base)

    assert text == "/home/dev/harbor/a --home-dev-harbor-- /home/dev/.pi"
