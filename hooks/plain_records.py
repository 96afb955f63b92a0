"""A quick stand-in for `dataclasses`, for a process that lives for one prompt.

The standard module writes source text for every class and compiles it: a hook without a server
spent half of its time on classes of which it makes a handful of objects. `install` puts this module
in its place before any of ours is imported. What our records rely on behaves the same (fields and
their defaults, slots, equality, hashing, order, `replace`, `fields`, `asdict`); what only catches
mistakes is left out: attributes can be set, arguments are not told apart by position, and there is
no `repr`. Never installed in a process that others depend on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final  # every value here belongs to somebody else's class


class _Missing:
    pass


MISSING: Final = _Missing()


class FrozenInstanceError(AttributeError):
    """Here for whoever imports it; never raised."""


class Field:
    """One field of a class."""

    __slots__ = ("compare", "default", "default_factory", "init", "name")

    def __init__(self, default: Any, default_factory: Any, init: bool, compare: bool) -> None:
        self.name = ""
        self.default, self.default_factory = default, default_factory
        self.init, self.compare = init, compare

    def value(self) -> Any:
        """What it holds when nothing is given."""
        if self.default_factory is not MISSING:
            return self.default_factory()
        if self.default is MISSING:
            raise TypeError(f"missing argument: {self.name!r}")
        return self.default


def field(
    *,
    default: Any = MISSING,
    default_factory: Any = MISSING,
    init: bool = True,
    compare: bool = True,
    **_: Any,
) -> Any:
    """As `dataclasses.field`."""
    return Field(default, default_factory, init, compare)


def dataclass(cls: Any = None, /, **options: Any) -> Any:
    """As `dataclasses.dataclass`."""
    return _made(cls, options) if cls is not None else lambda given: _made(given, options)


def fields(record: Any) -> tuple[Field, ...]:
    """As `dataclasses.fields`."""
    return tuple(record.__dataclass_fields__.values())


def is_dataclass(record: Any) -> bool:
    """As `dataclasses.is_dataclass`."""
    return hasattr(record, "__dataclass_fields__")


def replace(record: Any, /, **changes: Any) -> Any:
    """As `dataclasses.replace`."""
    for name, one in record.__dataclass_fields__.items():
        if one.init and name not in changes:
            changes[name] = getattr(record, name)
    return type(record)(**changes)


def asdict(record: Any) -> dict[str, Any]:
    """As `dataclasses.asdict`, for records that hold no others."""
    return {name: getattr(record, name) for name in record.__dataclass_fields__}


def _made(cls: Any, options: dict[str, Any]) -> Any:
    known: dict[str, Field] = {}
    for base in cls.__mro__[-1:0:-1]:
        known |= base.__dict__.get("__dataclass_fields__", {})
    space = dict(cls.__dict__)
    own = {}
    for name, spelled in space.get("__annotations__", {}).items():
        if "ClassVar" in str(spelled):
            continue
        given = space.pop(name, MISSING)
        own[name] = given if isinstance(given, Field) else Field(given, MISSING, True, True)
        own[name].name = name
    known |= own
    added = _methods(known, options)
    added["__match_args__"] = tuple(name for name, one in known.items() if one.init)
    added["__dataclass_fields__"] = known
    if not options.get("slots"):
        for name, value in added.items():
            if name not in space or name == "__match_args__":
                setattr(cls, name, value)
        return cls
    taken = {name for base in cls.__mro__[1:] for name in base.__dict__.get("__slots__", ())}
    space.pop("__dict__", None)
    space.pop("__weakref__", None)
    # The class's own methods win, as in the original.
    space = {**added, **space, "__slots__": tuple(name for name in own if name not in taken)}
    made = type(cls)(cls.__name__, cls.__bases__, space)
    made.__qualname__ = cls.__qualname__
    return made


def _methods(known: dict[str, Field], options: dict[str, Any]) -> dict[str, Any]:
    methods: dict[str, Any] = {"__init__": _init(known)}
    compared = [name for name, one in known.items() if one.compare]

    def key(record: Any) -> tuple[Any, ...]:
        return tuple([getattr(record, name) for name in compared])

    def equal(one: Any, other: Any) -> Any:
        return key(one) == key(other) if other.__class__ is one.__class__ else NotImplemented

    def before(one: Any, other: Any) -> Any:
        return key(one) < key(other) if other.__class__ is one.__class__ else NotImplemented

    if options.get("eq", True):
        methods["__eq__"] = equal
        methods["__hash__"] = (lambda one: hash(key(one))) if options.get("frozen") else None
    if options.get("order"):
        methods["__lt__"] = before
    return methods


def _init(known: dict[str, Field]) -> Callable[..., None]:
    given = [name for name, one in known.items() if one.init]
    put = object.__setattr__

    def init(self: Any, *values: Any, **named: Any) -> None:
        for name, value in zip(given, values, strict=False):
            put(self, name, value)
        for name in given[len(values) :]:
            put(self, name, named.pop(name) if name in named else known[name].value())
        for name, one in known.items():
            if not one.init:
                put(self, name, one.value())
        if named or len(values) > len(given):
            raise TypeError(f"unexpected arguments: {sorted(named) or len(values)}")
        finish = getattr(self, "__post_init__", None)
        if finish is not None:
            finish()

    return init


def install() -> None:
    """Stand in for `dataclasses` from now on, unless that is imported already."""
    if "dataclasses" not in sys.modules:
        module: ModuleType = sys.modules[__name__]
        sys.modules["dataclasses"] = module
