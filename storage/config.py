"""Settings: two TOML files and the environment, validated once, frozen.

`<home>/pi-memory/config.toml` holds for every project, `<project>/memory/config.toml` for one; the
environment overrides both. An unknown key is an error that names the nearest known one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from storage.errors import ConfigError
from storage.jobs import CLASSES, JobKind
from storage.paths import HomePaths, ProjectPaths


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The language model used by background tasks. Keys come from the environment only."""

    provider: str = "none"
    """none | openai (any OpenAI-compatible chat endpoint; HTTPS except loopback)."""
    name: str = ""
    base_url: str = ""
    api_key_env: str = "MEMORYD_MODEL_KEY"
    """Name of the environment variable that holds the key."""
    timeout_s: int = 120
    max_input_chars: int = 24_000
    max_output_tokens: int = 2_048


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """The encoder behind dense recall."""

    provider: str = "embedded"
    """embedded (all-MiniLM-L6-v2 int8, installed with memoryd) | openai | ollama | hash | none."""
    model: str = ""
    """The endpoint's name of the model."""
    dims: int = 0
    """Components of that model's vectors."""
    base_url: str = ""
    """Of the endpoint; "" is the provider's usual one."""
    key_variable: str = ""
    """The variable of the environment that holds the endpoint's key."""
    threads: int = 1
    max_tokens: int = 256


@dataclass(frozen=True, slots=True)
class BudgetSettings:
    """What background work may spend per day, over all projects."""

    calls_per_day: int = 200
    tokens_per_day: int = 500_000
    zone: str = "UTC"
    """The time zone whose midnight starts a new day."""
    limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Scope (`project:`, `kind:`, `model:` or `class:` and a name) -> its `calls`, its `tokens`."""
    shares: Mapping[str, float] = field(
        default_factory=lambda: {"class:interactive": 0.05, "class:correction": 0.1}
    )
    """Scope -> the part of the day's budget that no other work may use."""


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Leases and retries."""

    workers: int = 2
    lease_ms: int = 60_000
    max_attempts: int = 5
    max_crashes: int = 3
    retention_days: int = 7
    concurrency: Mapping[str, int] = field(default_factory=dict)
    """Class -> the most jobs of it that run at once. With two workers or more, one is kept for
    interactive work and corrections in any case."""


@dataclass(frozen=True, slots=True)
class RecallSettings:
    """What goes into a prompt."""

    enabled: bool = True
    max_items: int = 4
    max_bytes: int = 2_200
    deadline_ms: int = 250
    idle_exit_s: int = 0
    """Seconds without a request after which the recall server leaves; 0 = never."""
    max_index_bytes: int = 134_217_728
    shadow: bool = False
    """Nothing is put into prompts; the receipts say what would have been."""
    receipt_days: int = 14
    """How long receipts are kept; 0 = none is written."""


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """Which transcripts of a project are read."""

    pi: bool = True
    pi_sessions: str = ""
    """Folder of Pi's sessions; "" = ~/.pi/agent/sessions (or PI_CODING_AGENT_DIR)."""
    claude: bool = True
    claude_projects: str = ""
    """Folder of Claude Code's projects; "" = ~/.claude/projects (or CLAUDE_CONFIG_DIR)."""
    max_line_bytes: int = 8_388_608
    """Longer lines are skipped and counted."""


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """When the compact container promotes to the indexed one; whichever bound is met first."""

    compact_max_raw_bytes: int = 1_048_576
    compact_max_stored_bytes: int = 524_288
    compact_max_chunks: int = 750


@dataclass(frozen=True, slots=True)
class ScheduleSettings:
    """Cron expressions; "" switches an entry off."""

    zone: str = "UTC"
    """The time zone that the expressions are written in."""
    missed: str = "latest"
    """What happens to runs that were missed: skip | latest | all."""
    catch_up_hours: int = 24
    """Runs missed for longer are never made up for."""
    sync: str = "*/5 * * * *"
    consolidate: str = "17 3 * * *"
    gc: str = "47 3 * * *"
    checkpoint: str = "*/15 * * * *"
    backup: str = "27 4 * * *"
    verify: str = "37 4 * * 0"
    rollup: str = "7 0 * * *"
    maintenance: str = "57 4 * * *"


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting, validated."""

    model: ModelSettings = field(default_factory=ModelSettings)
    encoder: EncoderSettings = field(default_factory=EncoderSettings)
    budget: BudgetSettings = field(default_factory=BudgetSettings)
    queue: QueueSettings = field(default_factory=QueueSettings)
    recall: RecallSettings = field(default_factory=RecallSettings)
    sources: SourceSettings = field(default_factory=SourceSettings)
    storage: StorageSettings = field(default_factory=StorageSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)


ENVIRONMENT: Mapping[str, tuple[str, str]] = {
    "PI_MEMORY_ANALYSIS_PROVIDER": ("model", "provider"),
    "PI_MEMORY_ANALYSIS_MODEL": ("model", "name"),
    "MEMORYD_MODEL_BASE_URL": ("model", "base_url"),
    "MEMORYD_ENCODER": ("encoder", "provider"),
    "PI_MEMORY_DAEMON_MAX_CALLS": ("budget", "calls_per_day"),
    "PI_MEMORY_DAEMON_MAX_TOKENS": ("budget", "tokens_per_day"),
    "PI_MEMORY_DAEMON_LEASE_MS": ("queue", "lease_ms"),
    "PI_MEMORY_DAEMON_MAX_ATTEMPTS": ("queue", "max_attempts"),
    "PI_MEMORY_PREFLIGHT_BUDGET_MS": ("recall", "deadline_ms"),
}
"""Environment keys that override a setting (the first pi-memory's names where they had one)."""

_CHOICES: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("model", "provider"): ("none", "openai"),
    ("encoder", "provider"): ("embedded", "openai", "ollama", "hash", "none"),
    ("schedule", "missed"): ("skip", "latest", "all"),
}
_MINIMUM: Mapping[tuple[str, str], int] = {
    ("budget", "calls_per_day"): 0,
    ("budget", "tokens_per_day"): 0,
    ("recall", "idle_exit_s"): 0,
    ("recall", "receipt_days"): 0,
    ("queue", "lease_ms"): 3_000,
    ("recall", "deadline_ms"): 20,
    ("recall", "max_bytes"): 512,
}


_SCOPES = ("project", "kind", "model", "class")
_AMOUNTS = ("calls", "tokens")


def load_settings(
    home: HomePaths, environment: Mapping[str, str], project: ProjectPaths | None = None
) -> Settings:
    """Defaults, then the home file, then the project file, then the environment.

    Raises:
        ConfigError: says which key, what was expected and what was found.
    """
    settings = Settings()
    for path in (home.config, project.config if project else None):
        if path is not None and path.exists():
            settings = _apply(settings, _read(path), str(path.name))
    for name, (section, key) in ENVIRONMENT.items():
        text = environment.get(name)
        if text:
            settings = _apply(
                settings, {section: {key: _from_text(section, key, text, name)}}, name
            )
    return settings


def _read(path: Path) -> Mapping[str, Any]:  # Any: a TOML document, checked key by key below
    # Here, not above: most homes have no file, and a hook has no time for an unused import.
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as cause:
        raise ConfigError(f"{path}: cannot be read as TOML ({cause})") from cause


def _apply(settings: Settings, document: Mapping[str, Any], where: str) -> Settings:
    sections = {item.name for item in fields(Settings)}
    for section, values in document.items():
        if section not in sections:
            raise ConfigError(f"{where}: unknown section [{section}]{_nearest(section, sections)}")
        if not isinstance(values, Mapping):
            raise ConfigError(f"{where}: [{section}] must be a table")
        current = getattr(settings, section)
        checked = {
            key: _check(current, section, key, found, where) for key, found in values.items()
        }
        settings = replace(settings, **{section: replace(current, **checked)})
    return settings


def _check(current: Any, section: str, key: str, found: Any, where: str) -> Any:
    known = get_type_hints(type(current))
    if key not in known:
        raise ConfigError(f"{where}: unknown key {section}.{key}{_nearest(key, set(known))}")
    place = f"{where}: {section}.{key}"
    if (section, key) in _TABLES:
        return _TABLES[section, key](found, place)
    expected = known[key]
    if type(found) is not expected:
        raise ConfigError(f"{place}: expected {expected.__name__}, got {type(found).__name__}")
    choices = _CHOICES.get((section, key))
    if choices and found not in choices:
        raise ConfigError(f"{place}: expected one of {choices}, got {found!r}")
    if expected is int and found < (least := _MINIMUM.get((section, key), 1)):
        raise ConfigError(f"{place}: expected at least {least}, got {found}")
    if key == "zone":
        _check_zone(found, place)
    return found


def _check_zone(name: str, place: str) -> None:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as cause:
        raise ConfigError(f"{place}: no such time zone: {name!r}") from cause


def _table(found: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(found, Mapping):
        raise ConfigError(f"{place}: expected a table, got {type(found).__name__}")
    return found


def _check_scope(scope: str, place: str) -> None:
    sort, _, name = scope.partition(":")
    if sort not in _SCOPES or not name:
        expected = " or ".join(f"{known}:<name>" for known in _SCOPES)
        raise ConfigError(f"{place}: expected {expected}, got {scope!r}")
    known = {"kind": {kind.value for kind in JobKind}, "class": set(CLASSES)}.get(sort, {name})
    if name not in known:
        raise ConfigError(f"{place}: no such {sort}: {name!r}{_nearest(name, known)}")


def _check_limits(found: Any, place: str) -> Mapping[str, Mapping[str, int]]:
    for scope, amounts in _table(found, place).items():
        _check_scope(scope, place)
        for name, amount in _table(amounts, f"{place}.{scope}").items():
            if name not in _AMOUNTS:
                raise ConfigError(f"{place}.{scope}: expected one of {_AMOUNTS}, got {name!r}")
            if type(amount) is not int or amount < 0:
                raise ConfigError(
                    f"{place}.{scope}.{name}: expected a whole number, got {amount!r}"
                )
    return {scope: dict(amounts) for scope, amounts in found.items()}


def _check_shares(found: Any, place: str) -> Mapping[str, float]:
    for scope, share in _table(found, place).items():
        _check_scope(scope, place)
        if type(share) not in (int, float) or not 0 <= share <= 1:
            raise ConfigError(f"{place}.{scope}: expected a number from 0 to 1, got {share!r}")
    shares = {scope: float(share) for scope, share in found.items()}
    if sum(shares.values()) > 1:
        raise ConfigError(f"{place}: the shares are more than 1 together")
    return shares


def _check_concurrency(found: Any, place: str) -> Mapping[str, int]:
    for name, most in _table(found, place).items():
        if name not in CLASSES:
            raise ConfigError(f"{place}: no such class: {name!r}{_nearest(name, set(CLASSES))}")
        if type(most) is not int or most < 1:
            raise ConfigError(f"{place}.{name}: expected at least 1, got {most!r}")
    return dict(found)


_TABLES: Mapping[tuple[str, str], Callable[[Any, str], Any]] = {
    ("budget", "limits"): _check_limits,
    ("budget", "shares"): _check_shares,
    ("queue", "concurrency"): _check_concurrency,
}


def _from_text(section: str, key: str, text: str, where: str) -> Any:
    kind = get_type_hints(get_type_hints(Settings)[section])[key]
    if kind is int:
        try:
            return int(text)
        except ValueError as cause:
            raise ConfigError(f"{where}: expected a whole number, got {text!r}") from cause
    if kind is bool:
        return text.lower() in ("1", "true", "yes", "on")
    return text


def _nearest(name: str, known: set[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]}?)" if close else ""
