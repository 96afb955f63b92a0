"""Carries one hook's payload to the recall server and at most one line back.

Serves ``HOST EVENT --socket PATH [--spawn JSON] [--fallback JSON]``, a JSON argument being a list
of strings. Promises to exit 0 whatever happens, to print nothing but a hook's own JSON, and to be
gone within PROMPT_S (prompts) or NOTICE_S (everything else). Imports only what the interpreter
has at hand anyway: a process per hook is the price of these hosts, and ``json`` or ``socket``
would each double it. Understanding a payload is the server's business.
"""

import _signal  # type: ignore[import-not-found]  # `signal` costs five milliseconds of enum
import posix
import sys
import time
from _socket import AF_UNIX, SHUT_WR, SOCK_STREAM, socket, socketpair

PROMPT_S = 0.2
NOTICE_S = 0.05
LATE_S = 6.0
SPAWN_EVERY_S = 10.0
FALLBACK_NEEDS_S = 0.06
MAX_INPUT = 8 * 1024 * 1024
MAX_FRAME = 1024 * 1024
MAX_ANSWER = 64 * 1024
MAX_STRING = 9 * 1024
MAX_PROMPT = 32 * 1024
KEEP = 4 * 1024

_CUT = rb"\n[...]\n"
_PROMPT_EVENT = "UserPromptSubmit"
_KEPT_NAMES = (b"HOME", b"PATH", b"LANG", b"TMPDIR", b"TZ", b"USER")
_KEPT_PREFIXES = (b"LC_", b"XDG_", b"PI_MEMORY_", b"MEMORYD_")


def read_input(limit: int) -> bytes:
    """Standard input to its end, or nothing when it is longer than `limit`."""
    parts = []
    size = 0
    while part := posix.read(0, 1 << 16):
        size += len(part)
        if size > limit:
            return b""
        parts.append(part)
    return b"".join(parts)


def string_end(raw: bytes, start: int) -> int:
    """Index of the quote closing the JSON string whose first byte is at `start`, -1 if none."""
    quote = raw.find(b'"', start)
    at = start
    while quote >= 0:
        escape = raw.find(b"\\", at, quote)
        if escape < 0:
            return quote
        at = escape + 2
        if at > quote:
            quote = raw.find(b'"', at)
    return -1


def boundary(raw: bytes, at: int, floor: int) -> int:
    """The last index up to `at` that is inside neither an escape nor a UTF-8 character."""
    for back in range(at - 1, max(floor, at - 6) - 1, -1):
        if raw[back] == 0x5C:
            run = back
            while run > floor and raw[run - 1] == 0x5C:
                run -= 1
            begins = (back - run) % 2 == 0
            length = 6 if raw[back + 1] == 0x75 else 2
            if begins and back + length > at:
                return back
            break
    while at > floor and raw[at] & 0xC0 == 0x80:
        at -= 1
    return at


def trim(raw: bytes, longest: int, keep: int) -> bytes:
    """`raw` JSON with every string longer than `longest` bytes reduced to its two ends."""
    parts = []
    done = 0
    at = raw.find(b'"')
    while at >= 0:
        end = string_end(raw, at + 1)
        if end < 0:
            break
        if end - at > longest:
            head = boundary(raw, at + 1 + keep, at + 1)
            tail = boundary(raw, end - keep, at + 1)
            parts.append(raw[done:head] + _CUT)
            done = tail
        at = raw.find(b'"', end + 1)
    parts.append(raw[done:])
    return b"".join(parts)


def build_frame(host: str, event: str, raw: bytes) -> bytes:
    """The request line, or nothing when the payload is no JSON object or stays too large."""
    # A newline inside a JSON string is always escaped, so a bare one is only white space.
    raw = raw.replace(b"\n", b" ").replace(b"\r", b" ").strip()
    if raw[:1] != b"{" or raw[-1:] != b"}" or not (host + event).isalnum():
        return b""
    prompt = event == _PROMPT_EVENT
    longest, keep = (MAX_PROMPT, MAX_PROMPT // 2 - 8) if prompt else (MAX_STRING, KEEP)
    if len(raw) > longest:
        raw = trim(raw, longest, keep)
    parent = posix.environ.get(b"MEMORYD_SESSION", b"")
    if parent and len(raw) > 2 and parent.replace(b"-", b"").replace(b":", b"").isalnum():
        # Inherited from another agent: whoever wrote this prompt, it was not a person.
        raw = b'{"memoryd_parent":"' + parent[:120] + b'",' + raw[1:]
    reply = "raw" if prompt else "json"
    ident = f"{posix.getpid()}-{time.monotonic_ns()}"
    head = f'{{"v":1,"id":"{ident}","op":"hook","host":"{host}","event":"{event}","reply":"{reply}"'
    frame = head.encode() + b',"payload":' + raw + b"}\n"
    return frame if len(frame) <= MAX_FRAME else b""


def open_socket(path: str, seconds: float) -> socket:
    """A connection to the server; OSError when there is none, or it is another user's."""
    if posix.stat(path).st_uid != posix.geteuid():
        raise PermissionError
    link = socket(AF_UNIX, SOCK_STREAM)
    link.settimeout(max(0.001, seconds))
    link.connect(path)
    return link


def read_line(link: socket, deadline: float) -> bytes:
    """One line from `link`, or nothing when it is not whole by `deadline`."""
    got = b""
    while b"\n" not in got and len(got) <= MAX_ANSWER:
        left = deadline - time.monotonic()
        if left <= 0:
            return b""
        link.settimeout(left)
        part = link.recv(1 << 16)
        if not part:
            return b""
        got += part
    return got.partition(b"\n")[0]


def emit(line: bytes) -> None:
    """Print `line` if it is a hook's JSON: an agent would take any other text as context."""
    line = line.strip()
    opens = line[:64].replace(b" ", b"").startswith(b'{"hookSpecificOutput":{')
    if opens and line[-1:] == b"}" and len(line) <= MAX_ANSWER:
        posix.write(1, line + b"\n")


def strings(text: str) -> list[str]:
    """The JSON list of strings in `text`; empty when it is something else."""
    if not text:
        return []
    import json

    value = json.loads(text)
    good = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return value if good else []


def detach(path: str) -> bool:
    """True in a new process that has left the agent's session, pipes and folder; False here."""
    if posix.fork():
        return False
    posix.setsid()
    null = posix.open("/dev/null", posix.O_RDWR)
    for descriptor in (0, 1, 2):
        posix.dup2(null, descriptor)
    # The folder of the socket exists as long as memoryd does; the agent's may be unmounted.
    posix.chdir(path.rpartition("/")[0] or "/")
    posix.umask(0o077)
    return True


def may_spawn(path: str) -> bool:
    """Whether this process is the one to start a server now; holds for SPAWN_EVERY_S."""
    lock = path + ".spawn"
    try:
        if time.clock_gettime(time.CLOCK_REALTIME) - posix.stat(lock).st_mtime < SPAWN_EVERY_S:
            return False
        posix.unlink(lock)
    except FileNotFoundError:
        pass
    try:  # noqa: SIM105 -- contextlib would be one more import
        # A socket with a long path lives in a temporary folder that a reboot empties.
        posix.mkdir(path.rpartition("/")[0], 0o700)
    except OSError:
        pass
    try:
        posix.close(posix.open(lock, posix.O_CREAT | posix.O_EXCL | posix.O_WRONLY, 0o600))
    except OSError:
        return False
    return True


def server_environment() -> dict[bytes, bytes]:
    """What a server may inherit: an agent's own variables hold tokens of its session."""
    return {
        name: value
        for name, value in posix.environ.items()
        if (name in _KEPT_NAMES or name.startswith(_KEPT_PREFIXES)) and name != b"MEMORYD_SESSION"
    }


def start_server(path: str, argv: list[str], after_s: float) -> None:
    """Start the server `argv` in a while unless somebody just did, without waiting for it."""
    if argv and may_spawn(path) and detach(path):
        time.sleep(after_s)
        posix.execve(argv[0], argv, server_environment())


def send_late(path: str, frame: bytes) -> None:
    """Deliver `frame` from a process of its own as soon as the server being started listens."""
    if not detach(path):
        return
    deadline = time.monotonic() + LATE_S
    while time.monotonic() < deadline:
        try:
            open_socket(path, 1.0).sendall(frame)
            break
        except OSError:
            time.sleep(0.05)
    posix._exit(0)


def become(argv: list[str]) -> None:
    """Be the program `argv`: without another interpreter's start where it is `hooks` and says so.

    Its ``--path`` options name the folders that our modules and theirs are found in.
    """
    paths = [argv[at + 1] for at in range(4, len(argv) - 1) if argv[at] == "--path"]
    if argv[1:4] != ["-I", "-m", "hooks"] or argv[0] != sys.executable or not paths:
        posix.execv(argv[0], argv)
    sys.path[:0] = paths
    from hooks import plain_records

    plain_records.install()
    from hooks.__main__ import run as answer

    answer(argv[4:])


def ask_fallback(argv: list[str], raw: bytes, deadline: float) -> bytes:
    """What `argv` prints for the payload, or nothing when it is not done by `deadline`."""
    if not argv or deadline - time.monotonic() < FALLBACK_NEEDS_S:
        return b""
    ours, theirs = socketpair()
    child = posix.fork()
    if child == 0:
        try:
            posix.dup2(theirs.fileno(), 0)
            posix.dup2(theirs.fileno(), 1)
            posix.dup2(posix.open("/dev/null", posix.O_WRONLY), 2)
            become(argv)
        finally:
            posix._exit(0)
    theirs.close()
    try:
        ours.settimeout(max(0.001, deadline - time.monotonic()))
        ours.sendall(raw)
        ours.shutdown(SHUT_WR)
        return read_line(ours, deadline)
    finally:
        posix.kill(child, 9)


def mark_session(event: str) -> None:
    """Let agents started by this session's shell commands see that an agent started them."""
    target = posix.environ.get(b"CLAUDE_ENV_FILE")
    session = posix.environ.get(b"CLAUDE_CODE_SESSION_ID", b"")
    if event == "SessionStart" and target and session.replace(b"-", b"").isalnum():
        flags = posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT
        env_file = posix.open(target, flags, 0o600)
        posix.write(env_file, b"export MEMORYD_SESSION=claude:" + session[:100] + b"\n")
        posix.close(env_file)


def note_failure(path: str, event: str, error: BaseException) -> None:
    """Leave a line for the doctor: what failed, never what was said."""
    if not path:
        return
    log = posix.open(path + ".errors", posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT, 0o600)
    if posix.fstat(log).st_size < 1 << 16:
        now = int(time.clock_gettime(time.CLOCK_REALTIME) * 1000)
        posix.write(log, f"{now} hook.failed {event[:40]} {type(error).__name__}\n".encode())
    posix.close(log)


def run(host: str, event: str, options: dict[str, str], began: float) -> None:
    """Tell the server about one event and pass its answer on."""
    path = options["--socket"]
    prompt = event == _PROMPT_EVENT
    allowed = PROMPT_S if prompt else NOTICE_S
    deadline = began + allowed
    # Every wait below has its own limit; this one also covers an agent that leaves stdin open.
    _signal.signal(_signal.SIGALRM, lambda *_: posix._exit(0))
    _signal.setitimer(_signal.ITIMER_REAL, allowed + 0.01)
    mark_session(event)
    raw = read_input(MAX_INPUT)
    frame = build_frame(host, event, raw)
    if not frame:
        return
    try:
        link = open_socket(path, deadline - time.monotonic())
    except (FileNotFoundError, ConnectionRefusedError):
        server, fallback = strings(options["--spawn"]), strings(options["--fallback"])
        asks = prompt and bool(fallback)
        # A server imports for a quarter of a second: until then the processor is the answer's.
        start_server(path, server, PROMPT_S if asks else 0.0)
        if asks:
            emit(ask_fallback(fallback, raw, deadline))
        elif server:
            send_late(path, frame)
        return
    link.sendall(frame)
    if prompt:
        emit(read_line(link, deadline))


def main(argv: list[str]) -> None:
    """Parse `argv`, do the work, and leave with 0: any other code would stop the agent."""
    began = time.monotonic()
    options = {"--socket": "", "--spawn": "", "--fallback": ""}
    host = event = ""
    try:
        if posix.environ.get(b"MEMORYD_INTERNAL", b"") in (b"", b"0"):
            host, event = argv[1], argv[2]
            for index in range(3, len(argv) - 1, 2):
                options[argv[index]] = argv[index + 1]
            run(host, event, options, began)
    except BaseException as error:
        note_failure(options["--socket"], event, error)
    finally:
        # Skips the interpreter's own farewell, which costs a millisecond and may print.
        posix._exit(0)
