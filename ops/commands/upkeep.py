"""`ops verify`, `repair`, `rebuild`, `replay`, `promote`: proving a memory and bringing it back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from ops.exits import Exit
from ops.invocation import Invocation, shared_options
from ops.output import count, show, styled
from ops.project import Project, current_project, opened
from storage.authority.port import VerifyReport
from storage.config import load_settings
from storage.errors import Corrupt, MemorydError
from storage.projects import bindings
from storage.records import JsonValue


@click.command()
@click.option("--all", "everything", is_flag=True, help="Every project of this home.")
@shared_options(project=True)
def verify(invocation: Invocation, everything: bool) -> int:
    """Prove a memory: its history, its tables, its indexes.

    One line says each thing that is wrong, and the exit code is 4 then. Nothing is changed.
    """
    projects = _all_projects(invocation) if everything else [current_project(invocation)]
    found = [(project, *_proven(invocation, project)) for project in projects]
    unsound = [name for name, report, fault in found if fault or not (report and report.sound)]
    lines = [line for project, report, fault in found for line in _told(project, report, fault)]
    value: dict[str, JsonValue] = {
        "ok": not unsound,
        "projects": [_report_json(project, report, fault) for project, report, fault in found],
    }
    show(invocation.as_json, value, lines or ["No folder has a memory in this home yet."])
    return Exit.UNHEALTHY if unsound else Exit.OK


@click.command()
@click.argument("what", required=False, type=click.Choice(["queue"]))
@shared_options(project=True)
def repair(invocation: Invocation, what: str | None) -> None:
    """Mend a damaged memory; keep all that proves itself.

    What is damaged is copied into the memory's quarantine folder before anything is changed, and
    each cut is written into history. `repair queue` mends the home's queue instead: a damaged file
    is set aside, and its work is found again from the sources.
    """
    if what == "queue":
        from ops.commands.queue_repair import repair_queue

        repair_queue(invocation)
        return
    from storage.repair import repair as mend

    project = current_project(invocation)
    done = mend(
        project.paths,
        project.binding.project_id,
        clock=invocation.clock,
        settings=project.settings.storage,
    )
    value: dict[str, JsonValue] = {
        "ok": True,
        "changed": done.changed,
        "cuts": [
            {
                "file": cut.file,
                "offset": cut.offset,
                "bytes": cut.bytes,
                "sha256": cut.sha256,
                "kept_in": cut.kept_in,
            }
            for cut in done.cuts
        ],
        "restored_from": done.restored_from,
        "recovered_events": done.recovered,
        "lost_events": done.lost,
        "restated": done.restated,
        "notes": list(done.notes),
    }
    lines = [
        f"{cut.file}: {cut.bytes:,} bytes at {cut.offset:,}"
        + (f" set aside in {cut.kept_in}" if cut.kept_in else " are missing")
        for cut in done.cuts
    ]
    lines += [note[0].upper() + note[1:] + "." for note in done.notes]
    if done.restored_from:
        lines.append(f"Taken from the backup {done.restored_from}.")
    if done.recovered or done.lost or done.restated:
        lines.append(
            f"{count(done.recovered, 'event')} came back from a backup, {done.lost:,} are lost,"
            f" {done.restated:,} things were said again from the tables."
        )
    lines.append("The memory verifies." if done.changed else "Nothing is damaged.")
    show(invocation.as_json, value, lines)


@click.command()
@shared_options(project=True)
def rebuild(invocation: Invocation) -> None:
    """Derive every table and index again from history."""
    _counted(invocation, "rebuild")


@click.command()
@shared_options(project=True)
def replay(invocation: Invocation) -> None:
    """Take in what a crash left in the journal."""
    _counted(invocation, "replay")


@click.command()
@shared_options(project=True)
def promote(invocation: Invocation) -> None:
    """Give a small memory the form of a large one.

    It happens by itself when a memory grows; there is no way back.
    """
    project = current_project(invocation)
    with opened(invocation, project) as authority:
        before = authority.container
        authority.promote()
        after = authority.container
    value: dict[str, JsonValue] = {"ok": True, "container": after, "changed": before != after}
    said = "took" if before != after else "has"
    show(invocation.as_json, value, [f"The memory {said} its indexed form."])


def _counted(invocation: Invocation, what: str) -> None:
    project = current_project(invocation)
    with opened(invocation, project) as authority:
        events = authority.rebuild() if what == "rebuild" else authority.replay()
    value: dict[str, JsonValue] = {"ok": True, "events": events}
    done = "were applied again" if what == "rebuild" else "were taken in"
    show(invocation.as_json, value, [f"{count(events, 'event')} {done}."])


def _all_projects(invocation: Invocation) -> list[Project]:
    """Each memory once, however many folders share it."""
    found: dict[str, Project] = {}
    for binding in bindings(invocation.paths):
        paths = invocation.paths.project(binding.project_id)
        settings = load_settings(invocation.paths, invocation.environment, paths)
        project = Project(binding=binding, paths=paths, settings=settings)
        found.setdefault(binding.project_id, project)
    return [found[key] for key in sorted(found)]


def _proven(invocation: Invocation, project: Project) -> tuple[VerifyReport | None, str]:
    try:
        with opened(invocation, project) as authority:
            return authority.verify(), ""
    except Corrupt as fault:
        return None, str(fault)
    except MemorydError as fault:
        return None, f"cannot be looked at: {fault}"


def _told(project: Project, report: VerifyReport | None, fault: str) -> Sequence[str]:
    name = str(project.binding.location)
    if report is None:
        return [styled(f"{name}: {fault}").plain]
    if report.sound:
        sizes = (
            f"{count(report.events, 'event')}, {count(report.facts, 'fact')},"
            f" {count(report.documents, 'document')}"
        )
        return [styled(f"{name}: sound ({sizes})").plain]
    return [styled(f"{name}: {p.check}: {p.detail}").plain for p in report.problems]


def _report_json(
    project: Project, report: VerifyReport | None, fault: str
) -> Mapping[str, JsonValue]:
    problems: list[JsonValue] = [{"check": "file", "detail": fault}] if fault else []
    if report is not None:
        problems += [{"check": p.check, "detail": p.detail} for p in report.problems]
    return {
        "project": project.binding.project_id,
        "folder": str(project.binding.location),
        "sound": not problems,
        "events": report.events if report else None,
        "writers": report.writers if report else None,
        "documents": report.documents if report else None,
        "facts": report.facts if report else None,
        "problems": problems,
    }
