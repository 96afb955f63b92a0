"""A person's prose, sentence by sentence, out of a message that may hold anything.

Owns the parting of prose from pasted code, logs, diffs, tables and machine-written briefs, and the
splitting into sentences. Every sentence is a literal substring of the message. Precision over
recall: what looks like a machine wrote it is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

MAX_MESSAGE_CHARS: Final = 4_000
MAX_LINES: Final = 30

_BRIEF: Final = re.compile(
    r"\s*(?:#{1,6}\s|---\s*\n|<|Implement the following plan|You are (?:an? |the )|You're an? "
    r"|Your (?:task|job|role|goal) is|Task:|Context:|Please analyze this codebase|Act as "
    r"|\[?(?:cron|heartbeat|automated|scheduled)\b|\{|\[\{)",
    re.IGNORECASE,
)
# What programs ask of a model, and people hardly ever do.
_MACHINE_REQUEST: Final = re.compile(
    r"\b(?:reply|respond|answer|output|return)\b[^.\n]{0,40}\b(?:only|exactly|nothing else|"
    r"valid json|with json|in json|[A-Z]{4,}_[A-Z]{2,})\b"
    r"|\bHEARTBEAT\b|\bsystem prompt:|\byou are chatgpt\b",
    re.IGNORECASE,
)
_HEADING: Final = re.compile(r"^\s*#{1,6}\s+\S", re.MULTILINE)
_FENCE: Final = re.compile(r"^\s*(?:```|~~~)")
_MACHINE_LINE: Final = re.compile(
    r"""^\s*(?:
      [+-]\s*\d+\b | \+\+\+|---|@@ | diff\ --git | index\ [0-9a-f]{6,}        # diffs
    | at\ .+[(:]\S*\d | File\ ".*",\ line | Traceback | \w*(?:Error|Exception)\b:  # stacks
    | (?:npm|pnpm|yarn)\ (?:ERR!|WARN|error) | \w+\ (?:ERR!|WARN)               # tools
    | \[?\d{4}-\d\d-\d\d[T\ ]\d\d:\d\d | \[?(?:INFO|WARN(?:ING)?|ERROR|DEBUG|FATAL|TRACE)\b[\]:\s]
    | [➜❯$%›»]\s | \S+@\S+[:~]\S*[$\#] | ~?/\S+\s\(\S+\)\s*$ | >>>\s | PS\ \w:   # prompts
    | >  | \#{1,6}\s | \| | </?\w | [{}\[\]()]+[,;]?\s*$                         # quotes, tables
    | (?:import|export|const|let|var|def|class|func|fn|return|if|for|while|public|private)\b
      .*[({:;=]\s*$
    | (?:SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER)\s.*[;,(]\s*$ | \d+(?:\s{2,}|→)\S?  # listings
    | (?:https?|file)://\S+\s*$ | '?/(?:[\w.-]+/)+
    )""",
    re.VERBOSE,
)
_QUOTED: Final = re.compile(r"^\s*(?:>|#{1,6}\s|\|)")
_CODE_END: Final = re.compile(r"(?:[{};\\]|=>|\):|\) \{)\s*$")
_DRAWING: Final = re.compile(r"[─│┌└├┬┼━┃╭╰▏█⠀-⣿]")
_BULLET: Final = re.compile(r"\s*(?:[-*•‣]|\d{1,2}[.)])\s+(?:\[[ xX]\]\s+)?")
_CODE_SPAN: Final = re.compile(r"`[^`\n]*`|https?://\S+")
_END: Final = re.compile(r"(?:[.!?…]+[\"'”’»)\]]*(?=\s|$)|[。！？]+[」』）”]?)")
_ABBREVIATION: Final = re.compile(
    r"(?:^|[\s(])(?:e\.g|i\.e|etc|vs|approx|resp|cf|incl|no|nr|z\.B|d\.h|bzw|p\.ej|ej|ex|p|т\.е|"
    r"т\.к|[A-Za-z])\.$",
    re.IGNORECASE,
)


def is_brief(text: str) -> bool:
    """Whether a message was most likely written by a machine, or pasted whole from a document."""
    return (
        len(text) > MAX_MESSAGE_CHARS
        or text.count("\n") >= MAX_LINES
        or _BRIEF.match(text) is not None
        or _MACHINE_REQUEST.search(text) is not None
        or len(_HEADING.findall(text)) >= 2
    )


def sentences(text: str) -> list[str]:
    """The sentences of a message's prose, in order; each stands literally in `text`."""
    found: list[str] = []
    for start, end in _paragraphs(text):
        found.extend(_split(text[start:end]))
    return found


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Spans of prose; a hard-wrapped sentence stays in one span.

    From the second loose line of machine text on, the rest of the message is taken for a paste.
    """
    fenced = False
    pasted = 0
    start = end = -1
    at = 0
    for line in text.splitlines(keepends=True):
        begin, at = at, at + len(line)
        body = line.rstrip()
        if _FENCE.match(line):
            fenced = not fenced
            body = ""
        machine = not fenced and bool(body.strip()) and is_machine_line(body)
        pasted += machine and not _QUOTED.match(body)
        if fenced or machine or not body.strip() or pasted >= 2:
            if start >= 0:
                yield start, end
            start = -1
            continue
        if start >= 0 and not _continues(text[start:end], body):
            yield start, end
            start = -1
        if start < 0:
            bullet = _BULLET.match(body)
            start = begin + (bullet.end() if bullet else len(body) - len(body.lstrip()))
        end = begin + len(body)
    if start >= 0:
        yield start, end


def is_machine_line(line: str) -> bool:
    """Whether a line is code, log, diff, table, prompt or quotation rather than typed prose."""
    if _MACHINE_LINE.match(line) or _CODE_END.search(line) or _DRAWING.search(line):
        return True
    plain = _CODE_SPAN.sub("", line)
    visible = [char for char in plain if not char.isspace()]
    odd = sum(
        not char.isalnum() and char not in ".,;:!?'\"()-。、，！？「」¿¡’" for char in visible
    )
    return len(visible) > 8 and odd > 0.2 * len(visible)


def _continues(before: str, line: str) -> bool:
    last = before.rsplit("\n", 1)[-1]
    first = line.lstrip()[:1]
    wrapped = len(last) >= 60 and last[-1] not in ".!?:。！？"
    return wrapped and first.islower() and not _BULLET.match(line)


def _split(paragraph: str) -> Iterator[str]:
    masked = _CODE_SPAN.sub(lambda found: "x" * len(found.group()), paragraph)
    start = 0
    for end in _END.finditer(masked):
        if masked[end.start()] == "." and _ABBREVIATION.search(masked[start : end.start() + 1]):
            continue
        if piece := paragraph[start : end.end()].strip():
            yield piece
        start = end.end()
    if rest := paragraph[start:].strip():
        yield rest
