"""Turning a waiting statement into the English fact it is.

One job per statement: it asks the model once, checks that the answer is a translation and not
something else, and in one commit records the fact and releases everything that waited with the same
words. The fact's identity stays keyed on the original wording and its quotes stay as they were
said. Without a model the job waits, visibly; the statement is never stored in another language and
never lost.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from storage.authority import payloads
from storage.authority.reads import Reads
from storage.errors import Invalid, ModelUnavailable
from storage.events import EventDraft
from storage.jobs import JobKind, JobSpec, Priority
from storage.language import detect
from storage.records import DeferredStatement, JsonValue, RedactedText, statement_key
from storage.redaction import is_clean
from tasks.analyst_facts import Intake
from tasks.commit import commit
from tasks.context import Context, Finished
from tasks.llm import LanguageModel
from tasks.prompts import TRANSLATE, prompt

MAX_JOBS: Final = 200
FRESH_MS: Final = 600_000
MAX_DELAY_MS: Final = 21_600_000
_CODE: Final = re.compile(r"`([^`\n]+)`")


def run(context: Context, args: Mapping[str, JsonValue]) -> Finished:
    """Translate the named statement, or ask for one job per waiting statement.

    Raises:
        MissingModel: none is configured; the job waits.
        ModelUnavailable: no answer, or one that is no translation.
    """
    authority = context.open_authority()
    with authority.read() as reads:
        waiting = {item.statement_id: item for item in reads.deferred()}
        repeated = reads.is_applied(context.lease.stamp.job_id)
    wanted = args.get("statement")
    if wanted is None:
        groups = {_group(item): item for item in waiting.values()}
        jobs = [_job(context, item) for item in list(groups.values())[:MAX_JOBS]]
        return Finished(successors=tuple(jobs), note=f"{len(waiting)} waiting")
    embed = JobSpec(kind=JobKind.EMBED, project=context.project)
    vectors = (embed,) if context.settings.encoder.provider != "none" else ()
    if repeated:
        # The commit is there and only its acknowledgement was lost.
        return Finished(successors=vectors, note="was applied")
    statement = waiting.get(str(wanted))
    if statement is None:
        return Finished(note="not waiting any more")
    english = translation(
        context.model(), statement.original, limit=context.settings.model.max_output_tokens
    )

    def build(reads: Reads) -> tuple[int, Sequence[EventDraft]]:
        same = [item for item in reads.deferred() if _group(item) == _group(statement)]
        if not same:
            return 0, []
        intake = Intake(reads, context.project, context.clock.now_ms())
        recorded = intake.record(
            original=statement.original,
            statement=english,
            kind=statement.kind,
            evidence=[item.evidence for item in same],
            at=min(item.evidence.observed_at for item in same),
            confidence=1.0,
            tags={"lang": statement.lang},
            analyst=context.settings.model.name,
        )
        if recorded is None:
            raise Invalid("the translated statement is not fit to keep")
        released = [payloads.statement_released(item.statement_id, "translated") for item in same]
        return len(same), [*intake.drafts, *released]

    count = commit(context, authority, build)
    return Finished(successors=vectors, note=f"{count or 0} released")


def translation(model: LanguageModel, original: str, *, limit: int) -> RedactedText:
    """The English of one statement, checked.

    Raises:
        ModelUnavailable: the answer is empty, cut, too long, not English, has lost a code span or
            gained something credential-shaped; asking again may help.
    """
    tokens = min(limit, max(256, min(2_048, len(original) // 2)))
    completion = model.complete(prompt(TRANSLATE), original, max_output_tokens=tokens)
    text = " ".join(completion.text.split()).strip()
    if len(text) > 1 and text[0] in '"“' and text[-1] in '"”' and original[:1] not in '"“«':
        text = text[1:-1].strip()
    if not text or completion.truncated or len(text) > max(400, 3 * len(original)):
        raise ModelUnavailable("the model's answer is no translation")
    if not detect(text).english or not is_clean(text):
        raise ModelUnavailable("the model's answer is no English statement")
    if any(span not in text for span in _CODE.findall(original)):
        raise ModelUnavailable("the model's answer lost a literal name")
    return RedactedText(text)


def _group(statement: DeferredStatement) -> tuple[str, str]:
    """Statements with one key are one fact, quoted more than once."""
    return statement.kind.value, statement_key(statement.original)


def _job(context: Context, statement: DeferredStatement) -> JobSpec:
    """One job; a statement that waits for long is asked about ever less often.

    Otherwise one that no model manages to translate would spend the budget of every day.
    """
    now = context.clock.now_ms()
    age = now - statement.deferred_at
    return JobSpec(
        kind=JobKind.TRANSLATE,
        project=context.project,
        subject=statement.statement_id,
        args={"statement": statement.statement_id},
        priority=Priority.CORRECTION,
        run_at=now + min(age // 2, MAX_DELAY_MS) if age > FRESH_MS else None,
    )
