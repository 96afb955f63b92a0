// memoryd for Pi: reports what happens to the recall server, and puts what it recalls before the
// model. Fails open: no handler throws, and only a prompt waits, at most PREFLIGHT_MS.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";

import { Link, type Settings } from "./link.ts";

const PREFLIGHT_MS = 230;
const GOODBYE_MS = 150;
const PROMPT_CHARS = 32 * 1024;
const TOOL_CHARS = 8 * 1024;
const RECALLED_CHARS = 256 * 1024;
const RECALL = "memoryd-recall";

// Process-wide, because Pi runs the factory again on /new, /fork and /reload, and other extensions
// run whole sessions inside this process.
interface ProcessState {
  parent: string | undefined;
  live: Set<string>;
}
const STATE = Symbol.for("memoryd.process");

function processState(): ProcessState {
  const holder = globalThis as unknown as Record<symbol, ProcessState | undefined>;
  // Every child process inherits the variable, whoever starts it: a value that is already there
  // when this process first looks means that an agent started it.
  holder[STATE] ??= { parent: process.env.MEMORYD_SESSION, live: new Set() };
  return holder[STATE];
}

function readSettings(): Settings | undefined {
  let settings: Settings = { socket: "", server: [] };
  try {
    const path = fileURLToPath(new URL("./memoryd.json", import.meta.url));
    settings = { ...settings, ...JSON.parse(readFileSync(path, "utf8")) };
  } catch {
    // Not installed by `ops host install`; the environment may still name a socket.
  }
  const socket = process.env.MEMORYD_SOCKET || settings.socket;
  return socket ? { socket, server: settings.server } : undefined;
}

// The ends of a text say the most: what was run, and how it ended.
function clip(text: string, max: number): string {
  if (text.length <= max) return text;
  const half = Math.floor((max - 7) / 2);
  return `${text.slice(0, half)}\n[...]\n${text.slice(-half)}`;
}

function clipInput(input: unknown): unknown {
  const short = JSON.stringify(input, (_, value) =>
    typeof value === "string" ? clip(value, TOOL_CHARS) : value,
  );
  if (short === undefined) return "";
  return short.length <= 2 * TOOL_CHARS ? JSON.parse(short) : clip(short, TOOL_CHARS);
}

function textOf(content: readonly { type: string; text?: string }[]): string {
  return content.map((block) => block.text ?? "").join("\n");
}

function exitCode(structured: unknown): number | undefined {
  const code = (structured as { exit_code?: unknown } | undefined)?.exit_code;
  return typeof code === "number" ? code : undefined;
}

export default function memoryd(pi: ExtensionAPI): void {
  // Set around memoryd's own model calls: an agent started for them must not observe itself.
  if ((process.env.MEMORYD_INTERNAL || "0") !== "0") return;
  const settings = readSettings();
  if (!settings) return;
  const state = processState();
  const link = new Link(settings);
  let session: { sessionId: string; subagent: boolean } | undefined;
  let contextTokens = 0;
  let source: string | undefined;

  // What was recalled, by the timestamp of the prompt it belongs to, and what waits for its prompt.
  //
  // The blocks are put in again before every model call instead of being returned as a message or
  // written into the system prompt. A message is stored in the session file, and a compaction later
  // summarises it as if the user had said it, so a memory would come back as its own evidence. A
  // system prompt that changes with every prompt misses the whole prompt cache. Put in each time at
  // the same place, the request only ever grows at its end: the cached prefix stays valid, and
  // nothing of ours is in the file.
  const recalled = new Map<number, string>();
  let waitingBlock: string | undefined;

  function base(ctx: ExtensionContext): object {
    const transcript = ctx.sessionManager.getSessionFile();
    return { ...session, cwd: ctx.cwd, transcript, mode: ctx.mode };
  }

  // A throw would be reported to the user (or, from some events, stop the agent).
  function guarded<E, R>(work: (event: E, ctx: ExtensionContext) => R | Promise<R>) {
    return async (event: E, ctx: ExtensionContext): Promise<R | undefined> => {
      try {
        return await work(event, ctx);
      } catch {
        return undefined;
      }
    };
  }

  pi.on(
    "session_start",
    guarded((event, ctx) => {
      const sessionId = ctx.sessionManager.getSessionId();
      session = { sessionId, subagent: state.parent !== undefined || state.live.size > 0 };
      state.live.add(sessionId);
      process.env.MEMORYD_SESSION = `${process.pid}:${sessionId}`;
      contextTokens = ctx.getContextUsage()?.tokens ?? 0;
      link.tell("session_start", { ...base(ctx), reason: event.reason });
    }),
  );

  pi.on(
    "input",
    guarded((event, ctx) => {
      // A prompt typed while the agent works joins the running turn without a preflight of its own;
      // it is often a correction, so it is reported although nothing can be injected for it.
      if (!event.streamingBehavior) {
        source = event.source;
        return undefined;
      }
      if (event.source === "extension") return undefined;
      link.tell("input", { ...base(ctx), prompt: clip(event.text, PROMPT_CHARS) });
      return undefined;
    }),
  );

  pi.on(
    "before_agent_start",
    guarded(async (event, ctx) => {
      waitingBlock = undefined;
      // Older versions have no messageType, and fire this for prompts only.
      if ((event.messageType ?? "user") !== "user" || !("prompt" in event)) return undefined;
      // Who wrote it was said just before; another extension's prompt is not a person's word.
      const payload = { ...base(ctx), prompt: clip(event.prompt, PROMPT_CHARS), source };
      source = undefined;
      const answer = await link.ask("before_agent_start", payload, PREFLIGHT_MS);
      const block = answer?.block;
      if (typeof block === "string" && block) waitingBlock = block;
      return undefined;
    }),
  );

  pi.on(
    "context_with_system",
    guarded((event) => {
      const prompt = event.messages.findLast((message) => message.role === "user");
      if (waitingBlock !== undefined && prompt) {
        recalled.set(prompt.timestamp, waitingBlock);
        waitingBlock = undefined;
        forgetOldest();
      }
      if (recalled.size === 0) return undefined;
      const messages = event.messages.flatMap((message) => {
        const content = message.role === "user" ? recalled.get(message.timestamp) : undefined;
        if (content === undefined) return [message];
        const { timestamp } = message;
        const ours = { role: "custom" as const, customType: RECALL, content, display: false };
        return [message, { ...ours, timestamp }];
      });
      return { messages };
    }),
  );

  // Compaction removes old prompts from the conversation, not from this map.
  function forgetOldest(): void {
    let chars = 0;
    for (const block of recalled.values()) chars += block.length;
    for (const [timestamp, block] of recalled) {
      if (chars <= RECALLED_CHARS) return;
      recalled.delete(timestamp);
      chars -= block.length;
    }
  }

  pi.on(
    "tool_result",
    guarded((event, ctx) => {
      link.tell("tool_result", {
        ...base(ctx),
        toolName: event.toolName,
        toolCallId: event.toolCallId,
        input: clipInput(event.input),
        output: clip(textOf(event.content), TOOL_CHARS),
        isError: event.isError,
        exitCode: exitCode(event.structuredContent),
      });
      return undefined;
    }),
  );

  pi.on(
    "turn_end",
    guarded((event, ctx) => {
      const { message } = event;
      const total = message.role === "assistant" ? (message.usage?.totalTokens ?? 0) : 0;
      const tokens = Math.max(0, total - contextTokens);
      // After a compaction the context is smaller than before; growth counts from there.
      contextTokens = total || contextTokens;
      link.tell("turn_end", { ...base(ctx), tokens });
      return undefined;
    }),
  );

  pi.on(
    "agent_settled",
    guarded((_, ctx) => {
      link.tell("agent_settled", base(ctx));
    }),
  );

  pi.on(
    "session_shutdown",
    guarded(async (event, ctx) => {
      if (session) {
        state.live.delete(session.sessionId);
        link.tell("session_shutdown", { ...base(ctx), reason: event.reason });
        await link.flush(GOODBYE_MS);
      }
      link.close();
    }),
  );
}
