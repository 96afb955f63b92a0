"""`ops budget` and `ops schedule`: what background work may spend, and when it runs by itself.

Both only read.
"""

from __future__ import annotations

from typing import Final

import click

from ops.background import budget_today, cost_line, queue_reader
from ops.invocation import Invocation, shared_options
from ops.output import duration, moment, moment_json, show, table
from storage.budget import GLOBAL_SCOPE, BudgetView
from storage.config import load_settings
from storage.records import JsonValue
from storage.schedules import ScheduleView

UNLIMITED: Final = 2**53


@click.command()
@shared_options()
def budget(invocation: Invocation) -> None:
    """Show what a language model may cost today, and what of it is used."""
    settings = load_settings(invocation.paths, invocation.environment)
    whole = budget_today(invocation)
    parts = [budget_today(invocation, scope) for scope in settings.budget.limits]
    value = _budget_json(whole)
    value["scopes"] = [{"scope": view.scope, **_budget_json(view)} for view in parts]
    rows = [row for view in (whole, *parts) for row in _budget_rows(view)]
    now = invocation.clock.now_ms()
    wait = duration(whole.reset_at - now)
    closing = [
        f"A new day's budget comes at {moment(whole.reset_at)} (in {wait}).",
        f"Cost: {cost_line(settings.model, whole, now)}.",
    ]
    columns = ("today", ">used", ">held", ">left", ">limit")
    show(invocation.as_json, value, [table(columns, rows), *closing])


def _budget_rows(view: BudgetView) -> list[tuple[str, ...]]:
    name = "" if view.scope == GLOBAL_SCOPE else f", {view.scope}"
    figures = (
        ("model calls", view.calls_used, view.calls_held, view.calls_left, view.calls_limit),
        ("tokens", view.tokens_used, view.tokens_held, view.tokens_left, view.tokens_limit),
    )
    return [
        (
            f"{what}{name}",
            *("no limit" if figure >= UNLIMITED - 1 else f"{figure:,}" for figure in row),
        )
        for what, *row in figures
    ]


def _budget_json(view: BudgetView) -> dict[str, JsonValue]:
    return {
        "calls": {
            "limit": view.calls_limit,
            "used": view.calls_used,
            "held": view.calls_held,
            "left": view.calls_left,
        },
        "tokens": {
            "limit": view.tokens_limit,
            "used": view.tokens_used,
            "held": view.tokens_held,
            "left": view.tokens_left,
            "input": view.input_tokens,
            "cached": view.cached_tokens,
            "output": view.output_tokens,
            "reasoning": view.reasoning_tokens,
        },
        "reset_at": moment_json(view.reset_at),
    }


@click.command()
@shared_options()
def schedule(invocation: Invocation) -> None:
    """Show the work that runs by the clock: when it ran last, comes next, and what it missed."""
    from storage.schedules import views

    with queue_reader(invocation) as db:
        entries = views(db)
    now = invocation.clock.now_ms()
    value: dict[str, JsonValue] = {
        "schedule": [
            {
                "name": entry.name,
                "expression": entry.expression,
                "zone": entry.zone,
                "next_run_at": moment_json(entry.next_run_at),
                "last_run_at": moment_json(entry.last_run_at),
                "missed": entry.missed,
            }
            for entry in entries
        ]
    }
    rows = [
        (
            entry.name,
            f"{entry.expression} {entry.zone}",
            _last(entry),
            _next(entry, now),
            f"{entry.missed:,}",
        )
        for entry in entries
    ]
    empty = "The consumer writes its schedule when it first runs: ops start"
    columns = ("what", "when", "last", "next", ">missed")
    show(invocation.as_json, value, [table(columns, rows) if rows else empty])


def _last(entry: ScheduleView) -> str:
    if entry.last_run_at is None:
        return "never"
    return moment(entry.last_run_at)


def _next(entry: ScheduleView, now: int) -> str:
    if entry.next_run_at <= now:
        return f"due for {duration(now - entry.next_run_at)}"
    return moment(entry.next_run_at)
