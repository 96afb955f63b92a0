# shellcheck shell=sh
# Sourced by quickstart and test: makes sure that .venv at the repository's root is ready.
# Owns finding a Python, making .venv, installing the lock and the project, and saying in plain
# words what is missing. A run that finds its stamp does nothing; one that fails removes what it
# made. Needs $root (the repository); gives `set_up runtime|dev`.

venv=$root/.venv
stamp=$venv/.memoryd-stamp
unfinished=$venv/.memoryd-unfinished
python=
installer=
made=
log=
watcher=
unset PYTHONHOME PYTHONPATH PIP_TARGET PIP_PREFIX PIP_USER PIP_REQUIRE_VIRTUALENV VIRTUAL_ENV

say() { printf '%s\n' "$*" >&2; }

give_up() {
    say "memoryd: $1"
    shift
    for hint in "$@"; do say "  $hint"; done
    exit 1
}

# What .venv must match: the locks, the package's own description, and where the checkout stands.
wanted() {
    (cd "$root" && cat pyproject.toml requirements.lock requirements-dev.lock ops/bin/ops | cksum)
    printf '%s\n' "$root"
}

is_ready() {
    [ -f "$stamp" ] && [ -x "$venv/bin/python" ] && [ ! -e "$unfinished" ] || return 1
    found=$(cat "$stamp")
    [ "$found" = "dev $(wanted)" ] || { [ "$1" = runtime ] && [ "$found" = "runtime $(wanted)" ]; }
}

is_usable() {
    "$1" -I -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' 2>/dev/null
}

find_python() {
    if [ -n "${MEMORYD_PYTHON:-}" ]; then
        set -- "$MEMORYD_PYTHON"
    else
        set -- python3.13 python3.12 python3.11 python3.14 python3 python
    fi
    for name; do
        if command -v "$name" >/dev/null 2>&1 && is_usable "$name"; then
            python=$(command -v "$name")
            return 0
        fi
    done
    if [ -z "${MEMORYD_PYTHON:-}" ] && command -v uv >/dev/null 2>&1; then
        uv python find --no-project '>=3.11,<3.15' >/dev/null 2>&1 || uv python install 3.13 >&2 || :
        python=$(uv python find --no-project '>=3.11,<3.15' 2>/dev/null) && return 0
    fi
    give_up "no Python 3.11, 3.12, 3.13 or 3.14 was found${MEMORYD_PYTHON:+ at $MEMORYD_PYTHON}." \
        "Debian, Ubuntu: sudo apt install python3 python3-venv     macOS: brew install python@3.13" \
        "If one is installed elsewhere, name it: MEMORYD_PYTHON=/path/to/python3 $0"
}

find_installer() {
    installer=pip
    if [ "${MEMORYD_INSTALLER:-uv}" != pip ] && command -v uv >/dev/null 2>&1; then
        installer=uv
    elif ! "$python" -I -c 'import ensurepip, venv' 2>/dev/null; then
        version=$("$python" -I -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        give_up "Python $version is here, but its venv module is not." \
            "Debian, Ubuntu: sudo apt install python$version-venv     or install uv, then run $0 again"
    fi
}

# Held on descriptor 9 of this shell; the kernel frees it however the set-up ends.
take_lock() {
    exec 9<"$root/pyproject.toml"
    "$python" -I -c '
import fcntl, sys
try:
    fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print("Another set-up of this checkout is running: waiting for it.", file=sys.stderr)
    fcntl.flock(9, fcntl.LOCK_EX)
except OSError:
    pass  # a file system without locks: go on alone
'
}

make_venv() {
    if [ -e "$unfinished" ]; then
        say "The environment in .venv was left unfinished: making it again."
        rm -rf -- "$venv"
    elif [ -d "$venv" ] && ! { [ -x "$venv/bin/python" ] && is_usable "$venv/bin/python"; }; then
        say "The environment in .venv does not work (any more): making it again."
        rm -rf -- "$venv"
    elif [ -f "$stamp" ] && [ "$(tail -n 1 "$stamp")" != "$root" ]; then
        # Its scripts name their interpreter by its old place.
        say "This checkout was moved: making its environment again."
        rm -rf -- "$venv"
    fi
    [ -d "$venv" ] || made=yes
    if ! { mkdir -p -- "$venv" && : >"$unfinished"; } 2>/dev/null; then
        made=
        give_up "cannot make the folder .venv in $root." \
            "Make that folder writable (and move away a file named .venv), or copy the checkout" \
            "to a folder of yours; then run $0 again."
    fi
    [ -z "$made" ] || case $installer in
        uv) logged uv venv --no-project --allow-existing --python "$python" "$venv" ;;
        *) logged "$python" -I -m venv "$venv" ;;
    esac
}

install_all() {
    lock=$root/requirements.lock
    [ "$1" = runtime ] || lock=$root/requirements-dev.lock
    say "Installing memoryd's packages into .venv with $installer (once; about 90 MB to download)."
    set -- --require-hashes --only-binary :all: -r "$lock"
    if [ "$installer" = uv ]; then
        logged uv pip install --python "$venv/bin/python" "$@"
        logged uv pip install --python "$venv/bin/python" --no-deps --no-build-isolation -e "$root"
        return 0
    fi
    "$venv/bin/python" -I -m pip --version >/dev/null 2>&1 ||
        logged "$venv/bin/python" -I -m ensurepip
    logged "$venv/bin/python" -I -m pip --no-input install --no-compile --retries 2 "$@"
    logged "$venv/bin/python" -I -m pip --no-input install --no-index --no-deps \
        --no-build-isolation -e "$root"
}

# Runs a command whose output people need only when it fails.
logged() {
    watch_log
    status=0
    "$@" >>"$log" 2>&1 </dev/null || status=$?
    stop_watching
    [ "$status" = 0 ] || explain "$status"
}

watch_log() {
    [ -t 2 ] || return 0
    (
        seconds=0
        while sleep 1; do
            seconds=$((seconds + 1))
            now=$(sed -n 's/^ *\(Collecting [^ =>;]*\).*/\1/p;s/^\(Installing\) collected.*/\1/p' "$log" | tail -n 1)
            printf '\r\033[K  %s s  %s' "$seconds" "$now" >&2
        done
    ) 9<&- &
    watcher=$!
}

stop_watching() {
    [ -n "$watcher" ] || return 0
    kill "$watcher" 2>/dev/null || :
    wait "$watcher" 2>/dev/null || :
    watcher=
    printf '\r\033[K' >&2
}

explain() {
    kept=$log
    log=
    if grep -qiE 'name resolution|name or service not known|nodename nor servname|network is unreachable|NewConnectionError|ConnectTimeout|connection refused|dns error|error sending request|ProxyError|connection reset' "$kept"; then
        give_up "the package registry cannot be reached, and the packages are not here yet." \
            "Connect to the network (or set your proxy or mirror for $installer), then run $0 again." \
            "What $installer said: $kept"
    elif grep -qi 'no space left' "$kept"; then
        give_up "the disk is full; the installation needs about 400 MB while it runs." \
            "Free some space, then run $0 again.     What $installer said: $kept"
    elif grep -qiE 'do not match the hashes|hash mismatch' "$kept"; then
        give_up "a downloaded package is not the one the lock names; nothing was installed." \
            "Try again; if it stays so, the mirror you use is not to be trusted." \
            "What $installer said: $kept"
    elif grep -qiE 'no matching distribution|no solution found|no usable wheels|has no wheels' "$kept"; then
        give_up "a package has no ready-made build for this Python and machine." \
            "Name another Python: MEMORYD_PYTHON=/path/to/python3.12 $0" \
            "What $installer said: $kept"
    fi
    tail -n 5 "$kept" >&2
    give_up "the installation failed (exit code $1)." "All that $installer said: $kept"
}

# On every way out: no half-made environment, no spinner, no log that says nothing.
clean_up() {
    code=$?
    trap - EXIT
    stop_watching
    [ -z "$log" ] || rm -f -- "$log"
    if [ -n "$made" ] && [ -e "$unfinished" ]; then rm -rf -- "$venv"; fi
    exit "$code"
}

set_up() {
    if is_ready "$1"; then return 0; fi
    find_python
    find_installer
    take_lock
    if is_ready "$1"; then
        exec 9<&-
        return 0
    fi
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    # A set-up that was killed could not remove its log; what a failure kept is read within days.
    find "${TMPDIR:-/tmp}" -maxdepth 1 -type f -name 'memoryd-setup.*' -user "$(id -u)" -mtime +2 \
        -exec rm -f -- {} + 2>/dev/null || :
    log=$(mktemp "${TMPDIR:-/tmp}/memoryd-setup.XXXXXX") ||
        give_up "no temporary file can be made in ${TMPDIR:-/tmp}." "Set TMPDIR to a folder of yours."
    make_venv
    rm -f -- "$stamp"
    install_all "$1"
    printf '%s\n' "$1 $(wanted)" >"$stamp"
    rm -f -- "$unfinished" "$log"
    log=
    trap - EXIT INT TERM HUP
    exec 9<&-
}
