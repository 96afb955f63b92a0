"""The stock side of the queue's bench: `SqliteHuey` as it is shipped.

A script, not a module to import: it runs in processes and on a file of its own, because it brings
another SQLite build with it. FULL is what stock Huey leaves the library's default at.
"""

from __future__ import annotations

from typing import Final

STOCK: Final = """
import json, random, sys, threading, time
from huey import Huey, SqliteHuey
from huey.storage import SqliteStorage

role, folder, durability, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
pause_s = float(sys.argv[5]) if sys.argv[5:] else 0.0
ran_ns, asked_ns, done = [], [], threading.Event()

class Storage(SqliteStorage):
    def _create_connection(self):
        made = super()._create_connection()
        if durability == "NORMAL":
            made.execute("pragma synchronous=1")
        return made

path = folder + "/stock.sqlite"
if durability == "NORMAL":
    stock = Huey("stock", storage_class=Storage, filename=path)
else:
    stock = SqliteHuey("stock", filename=path)

@stock.task()
def noop(at=0):
    ran_ns.append(time.monotonic_ns())
    asked_ns.append(at)
    if len(ran_ns) == count:
        done.set()

def start():
    print("ready", flush=True)
    sys.stdin.readline()

if role == "enqueue":
    start()
    took = []
    for _ in range(count):
        if pause_s:
            time.sleep(pause_s * 2 * random.random())
        began = time.monotonic_ns()
        noop(began)
        took.append(time.monotonic_ns() - began)
    print(json.dumps({"took_ns": took}), flush=True)
elif role == "fill":
    for _ in range(count):
        noop(0)
else:
    consumer = stock.create_consumer(workers=1, periodic=False)
    start()
    used, began = time.process_time(), time.monotonic()
    consumer.start()
    if count:
        done.wait()
    else:
        sys.stdin.readline()
    share = (time.process_time() - used) / (time.monotonic() - began)
    print(json.dumps({"ran_ns": ran_ns, "asked_ns": asked_ns, "cpu_share": share}), flush=True)
    consumer.stop(graceful=True)
"""
