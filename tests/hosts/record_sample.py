"""Record the bundled sample sessions again, with the real agents and the scripted model.

Run from the repository's root: ``.venv/bin/python -m tests.hosts.record_sample``. It needs npm once
(to install the pinned agents) and rewrites ``ops/sample/*.jsonl``. The transcripts are the agents'
own files, line by line, with two changes: the machine's paths become ``/home/dev`` and
``/home/dev/harbor``, and text that belongs to the agent (its prompt, tool descriptions, requests)
is taken out. Ids and times differ on every recording; the conversation does not.
"""

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, cast

from tests.hosts.agents import CACHE, ROOT, ClaudeHome, PiHome, Run, available
from tests.hosts.harbor import CLAUDE_SESSION, PI_SESSION, Step, build
from tests.hosts.mock_model import MockModel

TARGET: Final = ROOT / "ops/sample"
REMOVED: Final = "[removed]"

Json = dict[str, object]

# Line types of Claude Code that are the conversation itself or repeat its words; of any other
# line only these keys stay, enough for an importer to see the shape it has to skip.
_SAID: Final = frozenset({"user", "assistant", "queue-operation", "last-prompt", "tools-used"})
_FRAME: Final = ("type", "uuid", "parentUuid", "isSidechain", "timestamp", "sessionId", "cwd")


def neutral_pi(line: Json) -> Json:
    """A Pi entry without Pi's own prompt and tool descriptions."""
    message = cast("Json", line.get("message", {}))
    if message.get("role") != "system":
        return line
    kept: Json = dict(message)
    sections = cast("Json", kept.get("sections", {}))
    if sections:
        kept["sections"] = dict.fromkeys(sections, REMOVED)
    if kept.get("content"):
        kept["content"] = REMOVED
    if "toolsAdded" in kept:
        kept["toolsAdded"] = [
            {"name": tool["name"], "description": REMOVED, "parameters": {}}
            for tool in cast("list[Json]", kept["toolsAdded"])
        ]
    return {**line, "message": kept}


def neutral_claude(line: Json) -> Json:
    """A Claude Code line without the agent's own texts, requests and view of the machine."""
    if line.get("type") in _SAID and not line.get("isMeta"):
        return line
    kept: Json = {key: line[key] for key in _FRAME if key in line}
    attachment = line.get("attachment")
    if isinstance(attachment, dict):
        kept["attachment"] = {"type": attachment.get("type"), "text": REMOVED}
    return kept


def neutral_text(text: str, base: Path) -> str:
    """`text` with this machine's folders renamed, whichever way an agent spells a path."""
    places = ((CACHE, "agents"), (base / "harbor", "harbor"), (base / "home", ""), (base, ""))
    for path, name in places:
        home = f"/home/dev/{name}".rstrip("/")
        text = text.replace(str(path), home)
        text = text.replace(re.sub(r"[^A-Za-z0-9]", "-", str(path)), home.replace("/", "-"))
    return text


def transcribe(source: Path, target: Path, base: Path, neutral: Callable[[Json], Json]) -> None:
    """Write `source` to `target`, neutralised line by line."""
    lines = [neutral(json.loads(line)) for line in source.read_text("utf-8").splitlines()]
    text = "".join(
        json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines
    )
    target.write_text(neutral_text(text, base), "utf-8")


def hold(steps: Sequence[Step], run: Callable[..., Run]) -> None:
    """Have the conversation, one prompt after the other in one session."""
    for number, step in enumerate(steps):
        more = () if number == 0 else ("-c",)
        done = run(*more, "-p", step.says)
        if done.code != 0 or step.answer not in done.out:
            raise SystemExit(f"step {number} went wrong: {done.out}{done.err}")


def record(base: Path) -> None:
    """Record both sessions under `base` and write the neutral copies."""
    for name in ("pi", "claude"):
        folder, tools = base / name, base / name / "tools"
        path = f"{tools}:/usr/local/bin:/usr/bin:/bin"
        script = [
            *(step.exchange("bash") for step in PI_SESSION),
            *(step.exchange("Bash") for step in CLAUDE_SESSION),
        ]
        with MockModel(script) as model:
            kind = PiHome if name == "pi" else ClaudeHome
            home = kind(folder, model.url, {"PATH": path}, "harbor")
            build(home.project, tools)
            author = "[user]\nname = Dev\nemail = dev@harbor.example\n"
            (home.home / ".gitconfig").write_text(author)
            hold(PI_SESSION if name == "pi" else CLAUDE_SESSION, home.run)
            (transcript,) = home.transcripts
            neutral = neutral_pi if name == "pi" else neutral_claude
            transcribe(transcript, TARGET / f"{name}-session.jsonl", folder, neutral)


def main() -> None:
    """Record into the repository."""
    reason = available()
    if reason is not None:
        sys.exit(reason)
    base = Path(tempfile.mkdtemp(prefix="md-"))
    try:
        TARGET.mkdir(parents=True, exist_ok=True)
        record(base)
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
