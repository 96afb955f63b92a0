// One connection to the recall server: frames out, answers in, nothing ever thrown.
//
// Promises that `tell` returns at once, that `ask` settles within its deadline whatever the server
// does (absent, slow, silent, talking nonsense), and that nothing here keeps Pi alive. A frame that
// finds no server waits in a small outbox while the server is being started.

import { spawn } from "node:child_process";
import { closeSync, mkdirSync, openSync, statSync, unlinkSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { dirname } from "node:path";

export interface Settings {
  socket: string;
  server: string[];
}

type Answer = Record<string, unknown> | undefined;

const MAX_FRAME_BYTES = 1024 * 1024;
const MAX_LINE_CHARS = 256 * 1024;
const OUTBOX_FRAMES = 64;
const OUTBOX_CHARS = 1024 * 1024;
const SPAWN_EVERY_MS = 10_000;
const RETRY_MS = 150;
const RETRIES = 40;
// After this many unanswered questions in a row, prompts stop waiting for a while: a server that
// hangs shall not cost every prompt its full deadline.
const PATIENCE = 2;
const REST_MS = 30_000;

const KEPT_NAMES = new Set(["HOME", "PATH", "LANG", "TMPDIR", "TZ", "USER"]);
const KEPT_PREFIXES = ["LC_", "XDG_", "PI_MEMORY_", "MEMORYD_"];

export class Link {
  private readonly settings: Settings;
  private connection: Socket | undefined;
  private open = false;
  private received = "";
  private outbox: string[] = [];
  private readonly waiting = new Map<string, (answer: Answer) => void>();
  private retry: NodeJS.Timeout | undefined;
  private retriesLeft = RETRIES;
  private lastId = 0;
  private unanswered = 0;
  private restUntil = 0;
  private closed = false;

  constructor(settings: Settings) {
    this.settings = settings;
  }

  /** Sends an event and forgets it. */
  tell(event: string, payload: object): void {
    this.send(this.nextId(), event, payload);
  }

  /** The server's result for an event, undefined when there is none within the deadline. */
  ask(event: string, payload: object, deadlineMs: number): Promise<Answer> {
    const id = this.nextId();
    if (Date.now() < this.restUntil) {
      this.send(id, event, payload);
      return Promise.resolve(undefined);
    }
    return new Promise((resolve) => {
      const settle = (answer: Answer) => {
        clearTimeout(timer);
        this.waiting.delete(id);
        resolve(answer);
      };
      // Not unref'ed: it is what keeps the process alive while this promise is awaited.
      const timer = setTimeout(() => {
        this.unanswered += 1;
        if (this.unanswered >= PATIENCE) this.restUntil = Date.now() + REST_MS;
        settle(undefined);
      }, deadlineMs);
      this.waiting.set(id, settle);
      if (!this.send(id, event, payload)) settle(undefined);
    });
  }

  /** Waits until what was sent has left this process, at most `ms`. */
  async flush(ms: number): Promise<void> {
    const deadline = Date.now() + ms;
    while (Date.now() < deadline) {
      const pending = this.outbox.length > 0 || (this.connection?.writableLength ?? 0) > 0;
      if (!pending) return;
      if (!this.connection) this.connect();
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.retry);
    this.connection?.end();
    this.drop();
  }

  private nextId(): string {
    this.lastId += 1;
    return `${process.pid}-${this.lastId}`;
  }

  private send(id: string, event: string, payload: object): boolean {
    const frame =
      JSON.stringify({ v: 1, id, op: "hook", host: "pi", event, reply: "json", payload }) + "\n";
    if (this.closed || Buffer.byteLength(frame) > MAX_FRAME_BYTES) return false;
    if (this.connection && this.open) {
      // A server that stopped reading must not make Pi's memory grow.
      if (this.connection.writableLength > OUTBOX_CHARS) return false;
      this.connection.write(frame);
      return true;
    }
    this.outbox.push(frame);
    let chars = this.outbox.reduce((sum, each) => sum + each.length, 0);
    while (this.outbox.length > OUTBOX_FRAMES || chars > OUTBOX_CHARS) {
      chars -= this.outbox.shift()?.length ?? 0;
    }
    if (!this.connection) this.connect();
    return this.connection !== undefined;
  }

  private connect(): void {
    if (this.isForeign()) return;
    const socket = connect(this.settings.socket);
    this.connection = socket;
    socket.unref();
    socket.setEncoding("utf8");
    socket.on("connect", () => {
      this.open = true;
      this.retriesLeft = RETRIES;
      for (const frame of this.outbox.splice(0)) socket.write(frame);
    });
    socket.on("data", (text: string) => this.receive(text));
    socket.on("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "ENOENT" || error.code === "ECONNREFUSED") this.serverIsAbsent();
    });
    socket.on("close", () => {
      if (this.connection === socket) this.drop();
    });
  }

  // In a shared temporary folder somebody else may have put a socket under our name.
  private isForeign(): boolean {
    try {
      return statSync(this.settings.socket).uid !== process.geteuid?.();
    } catch {
      return false;
    }
  }

  private receive(text: string): void {
    this.received += text;
    const lines = this.received.split("\n");
    this.received = lines.pop() ?? "";
    try {
      if (this.received.length > MAX_LINE_CHARS) throw new Error("no line ends here");
      for (const line of lines) this.answer(JSON.parse(line));
    } catch {
      // Whoever listens there does not speak our protocol: hang up, and nobody waits for it.
      this.drop();
    }
  }

  private answer(frame: { id?: unknown; ok?: unknown; result?: unknown }): void {
    const settle = typeof frame.id === "string" ? this.waiting.get(frame.id) : undefined;
    if (!settle) return;
    this.unanswered = 0;
    const { ok, result } = frame;
    settle(ok === true && result && typeof result === "object" ? (result as Answer) : undefined);
  }

  private drop(): void {
    const socket = this.connection;
    this.connection = undefined;
    this.open = false;
    this.received = "";
    if (!this.closed) socket?.destroy();
    for (const settle of [...this.waiting.values()]) settle(undefined);
  }

  private serverIsAbsent(): void {
    this.startServer();
    if (this.closed || this.retriesLeft <= 0) return;
    this.retriesLeft -= 1;
    clearTimeout(this.retry);
    this.retry = setTimeout(() => {
      if (!this.closed && !this.connection && this.outbox.length > 0) this.connect();
    }, RETRY_MS);
    this.retry.unref();
  }

  private startServer(): void {
    const [program, ...args] = this.settings.server;
    if (!program || !this.maySpawn()) return;
    try {
      const child = spawn(program, args, {
        cwd: dirname(this.settings.socket),
        detached: true,
        env: serverEnvironment(),
        stdio: "ignore",
      });
      child.on("error", () => {});
      child.unref();
    } catch {
      // The folder is gone or the program is not there: the doctor's business, not the prompt's.
    }
  }

  // The lock file is shared with the command client of other hosts.
  private maySpawn(): boolean {
    const lock = `${this.settings.socket}.spawn`;
    try {
      if (Date.now() - statSync(lock).mtimeMs < SPAWN_EVERY_MS) return false;
      unlinkSync(lock);
    } catch {
      // No lock yet.
    }
    try {
      // A socket with a long path lives in a temporary folder that a reboot empties.
      mkdirSync(dirname(lock), { recursive: true, mode: 0o700 });
      closeSync(openSync(lock, "wx", 0o600));
      return true;
    } catch {
      return false;
    }
  }
}

// An agent's environment holds keys of its own; a server outlives the agent and needs none of them.
function serverEnvironment(): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(
    ([name]) => KEPT_NAMES.has(name) || KEPT_PREFIXES.some((prefix) => name.startsWith(prefix)),
  );
  return Object.fromEntries(kept.filter(([name]) => name !== "MEMORYD_SESSION"));
}
