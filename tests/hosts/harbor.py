"""Harbor, a fictional project, and the conversations two developers have about it.

Owns the project's files, stand-ins for the tools it would use (pnpm, npm, docker) and the scripts
the recorded agents follow. Everything here is invented. Leaves running to ``record_sample``.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.hosts.mock_model import Exchange, Reply, ToolCall

FILES: Final[dict[str, str]] = {
    "README.md": "# Harbor\n\nPlans which ferry uses which berth, and when the tide allows it.\n",
    "package.json": '{"name": "harbor", "private": true, "scripts": {"test": "vitest"}}\n',
    "pnpm-lock.yaml": "lockfileVersion: '9.0'\n",
    "compose.yaml": "services:\n  berths:\n    image: postgres:17\n    profiles: [berths]\n"
    '    ports: ["5544:5432"]\n',
    "src/planner.ts": "export const SLOT_MINUTES = 15;\n",
    "fixtures/ports.json": '[{"port": "Norhaven", "berths": 4}]\n',
}

# The stand-ins keep state in files, so that the same command fails first and succeeds later.
TOOLS: Final[dict[str, str]] = {
    "pnpm": """#!/bin/sh
case "$1" in
  add) echo "  $2: 4.1.0" >> pnpm-lock.yaml; echo "dependencies:"; echo "+ $2 4.1.0" ;;
  db:up) touch .berths-up; echo "berth database is ready on port 5544" ;;
  test:integration)
    if [ -e .berths-up ]; then echo "Test Files  6 passed (6)"; echo "     Tests  41 passed (41)"
    else
      echo "FAIL  test/integration/berths.test.ts"
      echo "Error: connect ECONNREFUSED 127.0.0.1:5544 (berth database)" >&2
      echo "Test Files  6 failed (6)"; exit 1
    fi ;;
  lint) echo "Checked 38 files. No problems found." ;;
  *) echo "ERR_PNPM_NO_SCRIPT  Missing script: $1" >&2; exit 1 ;;
esac
""",
    "npm": """#!/bin/sh
echo '{"lockfileVersion": 3}' > package-lock.json; echo "added 1 package in 900ms"
""",
    "docker": """#!/bin/sh
touch .berths-up; echo " Container harbor-berths-1  Started"
""",
}


@dataclass(frozen=True, slots=True)
class Step:
    """What a developer says, the commands the agent then runs one by one, and what it answers."""

    says: str
    commands: tuple[str, ...]
    answer: str

    def exchange(self, tool: str) -> Exchange:
        """The step as a script for an agent whose shell tool is called `tool`."""
        extra = {"description": "Run it"} if tool == "Bash" else {}
        calls = tuple(
            Reply(tools=(ToolCall(tool, {"command": command, **extra}),))
            for command in self.commands
        )
        return Exchange(self.says, (*calls, Reply(self.answer)))


PI_SESSION: Final = (
    Step(
        "Hi! Have a look around and tell me what this repository does.",
        ("ls", "cat README.md"),
        "Harbor plans which ferry uses which berth and checks the tide. Where shall we start?",
    ),
    Step(
        "Add date-fns to the planner, we need it for the slot arithmetic.",
        ("npm install date-fns",),
        "I installed date-fns with npm; a package-lock.json was created.",
    ),
    Step(
        "No, use pnpm, never npm in this repository. Please undo that lock file.",
        ("rm package-lock.json", "pnpm add date-fns"),
        "Removed package-lock.json and added date-fns with pnpm instead.",
    ),
    Step(
        "Now run the integration tests.",
        (
            "pnpm test:integration",
            "cat compose.yaml",
            "docker compose --profile berths up -d",
            "pnpm test:integration",
        ),
        "The first run failed with ECONNREFUSED on 127.0.0.1:5544. The cause: the berth database "
        "was not running. After starting the compose profile berths, all 41 tests pass.",
    ),
    Step(
        "Not like that: the integration tests need `pnpm db:up` first. "
        "Don't call docker compose by hand.",
        ("pnpm db:up", "pnpm test:integration"),
        "Understood. With `pnpm db:up` first, the integration tests pass.",
    ),
    Step(
        "Remember that releases are cut on Thursdays from the harbor-stable branch.",
        (),
        "Noted: releases on Thursdays, from harbor-stable.",
    ),
    Step(
        "We decided to keep the tide tables in one SQLite file per port instead of Postgres, "
        "because the ferries are offline for most of the day. Write that down in docs/decisions.",
        (
            "mkdir -p docs/decisions && printf '%s\\n' '# 4. Tide tables in SQLite' '' "
            "'One file per port: ferries are offline for most of the day.' "
            "> docs/decisions/0004-tide-tables.md",
        ),
        "Recorded as decision 4: tide tables live in one SQLite file per port.",
    ),
    Step(
        "Guarda todo esto en un commit, por favor.",
        ("git add -A && git commit -q -m 'añadidas las tablas de mareas' && git log --oneline",),
        "Hecho: un commit con todos los cambios.",
    ),
    Step(
        "No, así no: los mensajes de commit van siempre en inglés y en imperativo, "
        "aunque yo te escriba en español.",
        ("git commit -q --amend -m 'Add tide tables per port' && git log --oneline",),
        "Corregido: el mensaje ahora es «Add tide tables per port».",
    ),
    Step("Great, thanks. That is all for today.", (), "You are welcome. See you tomorrow!"),
)

CLAUDE_SESSION: Final = (
    Step(
        "Good morning. Is the code clean?",
        ("pnpm lint",),
        "Yes, the linter checked 38 files and found nothing.",
    ),
    Step(
        "Add Osterbruk, a port with three berths, to the sample data.",
        ('echo \'[{"port": "Osterbruk", "berths": 3}]\' > src/ports.json',),
        "I created src/ports.json with Osterbruk.",
    ),
    Step(
        "Wrong place. Port data belongs in fixtures/ports.json, never under src.",
        (
            "rm src/ports.json",
            'echo \'[{"port": "Norhaven", "berths": 4}, {"port": "Osterbruk", "berths": 3}]\' '
            "> fixtures/ports.json",
        ),
        "Moved: Osterbruk is now in fixtures/ports.json and src/ports.json is gone.",
    ),
    Step(
        "Run the integration tests against it.",
        ("pnpm test:integration", "ls -a", "pnpm db:up", "pnpm test:integration"),
        "They failed at first with ECONNREFUSED 127.0.0.1:5544, because the berth database was "
        "down. After `pnpm db:up` all 41 tests pass.",
    ),
    Step(
        "Remember that a planner slot is 15 minutes and that the harbor master owns that number.",
        (),
        "I will keep that in mind: 15 minutes, owned by the harbor master.",
    ),
    Step(
        "Let's go with UTC for every stored departure, and convert to local time in the app only.",
        ("grep -n SLOT src/planner.ts",),
        "Agreed: stored departures are UTC, the app converts.",
    ),
    Step(
        "Publica este cambio, por favor.",
        (),
        "Puedo hacerlo con git push origin main. ¿Confirmas?",
    ),
    Step(
        "No, eso no: nunca subas nada directamente a main; "
        "abre siempre un pull request contra harbor-stable.",
        ("git switch -q -c add-osterbruk && git branch --show-current",),
        "De acuerdo: rama add-osterbruk lista para un pull request contra harbor-stable.",
    ),
    Step("Thank you, bye.", (), "Goodbye!"),
)


def build(project: Path, tools: Path) -> None:
    """Write the project and its stand-in tools."""
    for name, text in FILES.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    tools.mkdir(parents=True, exist_ok=True)
    for name, text in TOOLS.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o700)
