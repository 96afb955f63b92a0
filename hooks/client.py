"""The program an agent runs at every hook: ``python -I -S client.py HOST EVENT --socket PATH ...``.

Owns nothing but the way in. A script is compiled at every start, a module only once, and compiling
the courier takes a third of a hook's time: so this file stays small and imports it by its folder.
Promises what ``hooks.courier`` promises, even when that module cannot be loaded: exit code 0.
"""

import posix
import sys

if __name__ == "__main__":
    try:
        sys.path.insert(0, __file__.rpartition("/")[0])
        from courier import main  # type: ignore[import-not-found]  # in the folder above
    except BaseException:
        posix._exit(0)
    del sys.path[0]
    main(sys.argv)
