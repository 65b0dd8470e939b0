// The types of hostler's WIT in componentize-qjs: a `u64` is a number.

declare module "hostler:handler/types@1.2.0" {
  /** One message, as one attempt receives it. */
  export interface Message {
    /** An idempotency key: the same for every attempt at this message, also after requeues and replays. */
    id: string;
    /** The queue of the message: the key of a stream or a list, or the name of a channel. */
    queue: string;
    /** The body, byte for byte. */
    body: Uint8Array;
    /** The headers: names in lower case, values as UTF-8 (other bytes are replaced). */
    headers: [name: string, value: string][];
    /** The number of this handler start, counted from 1. */
    attempt: number;
    /** The number of starts after which the message is given up; 0 = never. */
    maxAttempts: number;
    /** The time when the message was enqueued, in epoch milliseconds; 0 = unknown. */
    enqueuedMs: number;
  }

  /** The handler's decision about the message. */
  export type Outcome =
    /** Done: remove the message from the queue. */
    | { tag: "ack" }
    /** Try later: deliver the message again after this many milliseconds, at most 30 days; null = the queue's backoff, 0 = at once. */
    | { tag: "nack-requeue"; val: number | null }
    /** Give up: move the message to the dead-letter queue, if there is one, with this reason for people. */
    | { tag: "drop"; val: string | null };

  /** What `handler.ts` exports as `messageHandler`. */
  export interface MessageHandler {
    /** Handle one message, with or without `async`. */
    handle(message: Message): Outcome | Promise<Outcome>;
  }
}

declare module "hostler:handler/delivery@1.2.0" {
  const delivery: {
    /** Milliseconds until this attempt times out. */
    deadlineMs(): number;
    /** Whether the host is stopping; the handler should then answer soon. */
    isCancelled(): boolean;
    /** The W3C trace context of the message: `traceparent` and `tracestate`, if it has them. */
    traceContext(): [traceparent: string | null, tracestate: string | null];
  };
  export default delivery;
}

declare module "wasi:cli/stdout@0.2.6" {
  const stdout: {
    getStdout(): { blockingWriteAndFlush(contents: Uint8Array): void };
  };
  export default stdout;
}

/** Call a function after those that wait already. */
declare function queueMicrotask(callback: () => void): void;

/** A part of the standard `crypto`, from `runtime/random.js`. */
declare const crypto: {
  /** Fill an array of integers, of at most 65,536 bytes, with random bits. */
  getRandomValues<T extends ArrayBufferView>(array: T): T;
  /** A random UUID (version 4). */
  randomUUID(): string;
};
