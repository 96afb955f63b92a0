"""`ops eval`: measure recall on a corpus with questions, in a throw-away home."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ops.invocation import Invocation, shared_options
from ops.output import show, table, write_json

if TYPE_CHECKING:
    from ops.eval.run import Mode
    from ops.eval.score import Estimate, GateScores, RankingScores
    from retrieval.embedding import Encoder
    from storage.records import JsonValue

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)


@click.group()
def eval() -> None:
    """Measure how well recall finds, and when it keeps silent."""


@eval.command()
@click.option("--corpus", type=FILE, required=True, help="Texts, one JSON object a line.")
@click.option("--queries", type=FILE, required=True, help="Questions, one JSON object a line.")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="Results."
)
@click.option(
    "--mode", type=click.Choice(["auto", "lexical", "dense"]), default="auto", show_default=True
)
@click.option("--ungated", is_flag=True, help="List the ranking where recall abstains, too.")
@click.option("--cache", type=FOLDER, help="Keep vectors here between runs.")
@shared_options()
def run(
    invocation: Invocation,
    corpus: Path,
    queries: Path,
    out: Path,
    mode: Mode,
    ungated: bool,
    cache: Path | None,
) -> None:
    """Answer QUERIES from CORPUS, as memoryd would, and write one line of result each.

    Texts come in through the way everything comes in (redaction, events, embedding). A result has
    the gate's verdict as its status and the ranking as its items, ten deep; where recall abstains
    the items are empty, unless --ungated. Measure rankings ungated, and the gate by the statuses.
    """
    from ops.eval.corpus import read_corpus, read_queries
    from ops.eval.memory import EvalMemory
    from ops.eval.run import answers, write_results

    encoder = None if mode == "lexical" else local_encoder(cache)
    texts, asked = read_corpus(corpus), read_queries(queries)
    memory = EvalMemory(texts, clock=invocation.clock, encoder=encoder, say=_progress)
    try:
        now = invocation.clock.now_ms()
        found = answers(memory, asked, encoder=encoder, now_at=now, mode=mode, ungated=ungated)
        results = write_results(out, found)
    finally:
        memory.close()
    silent = sum(result.status == "abstained" for result in results)
    value: dict[str, JsonValue] = {
        "ok": True,
        "texts": len(texts),
        "refused": memory.refused,
        "questions": len(results),
        "abstained": silent,
        "out": str(out),
    }
    said = f"{len(results):,} questions to {len(texts):,} texts; {silent:,} abstained: {out}"
    show(invocation.as_json, value, [said])


@eval.command()
@click.option("--results", type=FILE, required=True, help="What `ops eval run` wrote.")
@click.option("--qrels", type=FILE, required=True, help="query TAB document TAB grade.")
@click.option("--unanswerable", type=FILE, help="Ids of questions without an answer, one a line.")
@shared_options()
def score(invocation: Invocation, results: Path, qrels: Path, unanswerable: Path | None) -> None:
    """Score results: nDCG, Recall, MRR and hit at 10, and abstention, with 95 % intervals.

    Without --unanswerable, every question of the results that has no answer in QRELS counts as one.
    """
    from ops.eval.corpus import read_ids, read_qrels, read_results
    from ops.eval.score import gate_scores, ranking_scores

    answers = read_qrels(qrels)
    rows = {str(row.get("id")): row for row in read_results(results)}
    judged = {query: found for query, found in answers.items() if query in rows}
    without = read_ids(unanswerable) if unanswerable else frozenset(rows.keys() - answers.keys())
    ranked = ranking_scores({query: _ids(row) for query, row in rows.items()}, judged)
    statuses = {query: str(row.get("status")) for query, row in rows.items()}
    gate = gate_scores(statuses, judged, without)
    value: dict[str, JsonValue] = {**ranked.json(), "abstention": gate.json()}
    show(
        invocation.as_json,
        value,
        [table(("measure", ">mean", ">95 % interval"), _rows(ranked)), *_gate_lines(gate)],
    )


@eval.command()
@click.option("--shared", type=FOLDER, help="Also the sets of this folder.")
@click.option("--set", "names", multiple=True, help="Only this set; may be given several times.")
@click.option("--cache", type=FOLDER, help="Keep vectors here between runs.")
@shared_options()
def compare(
    invocation: Invocation, shared: Path | None, names: tuple[str, ...], cache: Path | None
) -> None:
    """Print the table of README: BM25, dense, equal RRF, hashed vectors and memoryd, per set.

    The own gold suite is always there, its test questions apart. Shared sets are read from
    --shared or MEMORYD_SHARED.
    """
    from ops.eval.sets import own_set, shared_sets, strangers
    from ops.eval.table import compare as compared
    from ops.eval.table import gate_markdown, markdown

    named = invocation.environment.get("MEMORYD_SHARED", "")
    folder = shared or (Path(named) if named else None)
    own = own_set()
    sets = [own.only("dev"), own.only("test"), *(shared_sets(folder) if folder else ())]
    wanted = [one for one in sets if not names or one.name in names or one.name.split()[0] in names]
    if not wanted:
        known = ", ".join(one.name for one in sets)
        raise click.UsageError(f"There is no such set here. Known: {known}.")
    encoder = local_encoder(cache)
    clock = invocation.clock
    measured = [
        compared(one, clock=clock, encoder=encoder, say=_progress, unrelated=strangers(one, sets))
        for one in wanted
    ]
    if invocation.as_json:
        write_json({"sets": [one.json() for one in measured]})
        return
    lines = [*markdown(measured), "", *gate_markdown(measured)]
    for one in measured:
        if one.gate.unanswerable:
            kinds = ", ".join(
                f"{kind} {share:.0%} of {count}"
                for kind, (count, share) in one.gate_by_kind.items()
            )
            lines += ["", f"{one.name}, silence by kind of question: {kinds}."]
    print("\n".join(lines))


def local_encoder(cache: Path | None) -> Encoder:
    """The embedded encoder, loaded; with its vectors kept in a folder where one is given."""
    from ops.eval.cache import CachedEncoder
    from retrieval.embedding import OnnxEncoder
    from retrieval.multilingual import Bilingual, MultilingualEncoder, installed
    from storage.config import EncoderSettings

    parts: list[Encoder] = [OnnxEncoder(EncoderSettings())]
    if installed():
        parts.append(MultilingualEncoder())
    if cache is not None:
        parts = [CachedEncoder(part, cache) for part in parts]
    else:
        for part in parts:
            part.warm()
    return parts[0] if len(parts) == 1 else Bilingual(*parts)


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _ids(row: Mapping[str, JsonValue]) -> list[str]:
    items = row.get("items")
    if not isinstance(items, list):
        return []
    return [str(item["id"]) for item in items if isinstance(item, dict) and "id" in item]


def _rows(scores: RankingScores) -> list[tuple[str, str, str]]:
    named: list[tuple[str, Estimate]] = [
        ("nDCG@10", scores.ndcg),
        ("Recall@10", scores.recall),
        ("MRR@10", scores.mrr),
        ("hit@10", scores.hit),
    ]
    return [(name, f"{one.mean:.4f}", f"{one.low:.4f} to {one.high:.4f}") for name, one in named]


def _gate_lines(gate: GateScores) -> list[str]:
    lines = [f"Silence on {gate.abstained_answerable:.1%} of {gate.answerable:,} with an answer."]
    if gate.unanswerable:
        lines.append(
            f"False injection: {gate.injected_unanswerable:.1%} of {gate.unanswerable:,} without."
        )
    return lines
