/** One message, as one attempt receives it. */
export interface Message {
  /** An idempotency key: the same for every attempt at this message, also after requeues and replays. */
  id: string;
  /** The queue of the message: the key of a stream or a list, or the name of a channel. */
  queue: string;
  /** The body, byte for byte. */
  body: Uint8Array;
  /** The headers: names in lower case. Of a name that is there twice, the last value. */
  headers: Record<string, string>;
  /** The number of this attempt, counted from 1. */
  attempt: number;
  /** The number of attempts after which the message is given up; 0 = never. */
  maxAttempts: number;
  /** The time when the message was enqueued, in epoch milliseconds; 0 = unknown. */
  enqueuedMs: number;
}

/** What reads a payload: a schema of zod, valibot and others, anything with `parse`, or `text` or `bytes`. */
export type Schema<T> =
  | { "~standard": { validate(value: unknown): unknown; types?: { output: T } | undefined } }
  | { parse(value: unknown): T }
  | { decode(body: Uint8Array): T };

/** A handler: the export of the module, `export default handler(...)`. */
export type Handler = (message: never) => Promise<unknown>;

/** Handle messages whose body is JSON. Return = ack; an error = a failed attempt, which is tried again. */
export function handler<T = unknown>(run: (payload: T, message: Message) => unknown): Handler;
/** Handle messages that this schema accepts. All others become dead letters. */
export function handler<T>(schema: Schema<T>, run: (payload: T, message: Message) => unknown): Handler;

/** The payload is the body as text. */
export const text: { decode(body: Uint8Array): string };

/** The payload is the body, byte for byte. */
export const bytes: { decode(body: Uint8Array): Uint8Array };

/** Give the message up: it becomes a dead letter with this reason. */
export class Drop extends Error {
  constructor(reason: string);
}

/** Try again after so many milliseconds, and not after the backoff of the queue. */
export class RetryAfter extends Error {
  readonly ms: number;
  constructor(ms: number, message?: string);
}

/** Publish a message together with the acknowledgement: both happen, or neither. Bytes and text stay as they are; everything else is JSON. */
export function publish(queue: string, value: unknown, headers?: Record<string, string>, delayMs?: number): void;

/** Values that stay between messages. `set` and `delete` happen together with the acknowledgement. */
export const keyValue: {
  /** The value of a key, from JSON; `undefined` = it has none. */
  get<T = unknown>(key: string): T | undefined;
  /** The value of a key, byte for byte. */
  getBytes(key: string): Uint8Array | undefined;
  /** Set a value: bytes as they are, everything else as JSON. It expires so many milliseconds later. */
  set(key: string, value: unknown, ttlMs?: number): void;
  delete(key: string): void;
  /** Add to a number at once, and return the sum. A message that is handled twice adds twice. */
  increment(key: string, by?: number): number;
};

/**
 * The error to throw for a message that waits: it comes again after so many milliseconds, and the attempt is not charged.
 * Throws itself if the host does not hold the message.
 */
export function hold(ms: number): RetryAfter;

/**
 * Answer to a producer that waits, together with the acknowledgement: both happen, or neither. Bytes and text stay as they are;
 * everything else is JSON. The last answer counts.
 */
export function reply(value: unknown): void;

/** The value that an attempt at this message has remembered last under this name; `undefined` = there is none. */
export function recall<T = unknown>(name: string): T | undefined;

/** Remember a value, as JSON, for later attempts at this message. It is there when this returns, whatever becomes of this attempt. */
export function remember(name: string, value: unknown): void;

export const secrets: {
  /** The present value of a secret. */
  get(name: string): string;
};

export const config: {
  /** A value of the operator; `undefined` = there is none. */
  get(name: string): string | undefined;
};

export const deadline: {
  /** Milliseconds until this attempt times out. */
  leftMs(): number;
  /** Whether the host is stopping; the handler should then end soon. */
  isCancelled(): boolean;
};

/** Log events with a level. `console` works as well. */
export const log: Record<"debug" | "info" | "warn" | "error", (text: string, fields?: Record<string, unknown>) => void>;
