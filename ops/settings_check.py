"""Settings that can be read but cannot work: half a model, a schedule that never comes.

Owns finding them and naming the key; the rules are those of the code that uses the settings. A
setting that cannot be read at all is `storage.config`'s error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from storage.config import ModelSettings, ScheduleSettings, Settings
from storage.errors import ConfigError


def settings_problems(settings: Settings, environment: Mapping[str, str]) -> list[str]:
    """What cannot work as it is written, each naming its key; empty when all can."""
    return [*model_problems(settings.model, environment), *_schedule(settings.schedule)]


def model_problems(model: ModelSettings, environment: Mapping[str, str]) -> Iterator[str]:
    """What is missing or wrong before the language model can be asked."""
    from retrieval.endpoint import Endpoint

    if model.provider == "none":
        given = [name for name in ("name", "base_url") if getattr(model, name)]
        if given:
            names = " and ".join(f"model.{name}" for name in given)
            yield f'model.provider is "none", but {names} is set: for a model set it to "openai"'
        return
    if not model.name:
        yield "model.name is missing: the model's name at its endpoint"
    if not model.base_url:
        yield "model.base_url is missing: the endpoint's address"
        return
    try:
        endpoint = Endpoint(model.base_url, key=environment.get(model.api_key_env, ""))
    except ConfigError as problem:
        yield str(problem)
        return
    if not endpoint.is_local and not environment.get(model.api_key_env):
        yield f"model.api_key_env: {model.api_key_env} is not set in this environment"


def _schedule(schedule: ScheduleSettings) -> Iterator[str]:
    from tasks.schedule import entries

    try:
        entries(schedule)
    except ConfigError as problem:
        yield str(problem)
