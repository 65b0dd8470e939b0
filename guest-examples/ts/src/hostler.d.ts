// The WIT of hostler as componentize-qjs maps it: `u64` is a number.

declare module "hostler:handler/types@1.0.0" {
  /** One message, as one attempt sees it. */
  export interface Message {
    /** The same for every attempt at this message, through requeues and replays: an idempotency key. */
    id: string;
    /** The queue it came from: a stream's or list's key, or the channel's name. */
    queue: string;
    /** The body, byte for byte. */
    body: Uint8Array;
    /** The headers: names in lower case, values as UTF-8 (what is not UTF-8 is replaced). */
    headers: [name: string, value: string][];
    /** Which handler start this is, counted from 1. */
    attempt: number;
    /** After how many starts the message is given up; 0 = never. */
    maxAttempts: number;
    /** When the message was enqueued, in epoch milliseconds; 0 = unknown. */
    enqueuedMs: number;
  }

  /** What the handler wants to happen with the message. */
  export type Outcome =
    /** Done: take it off the queue. */
    | { tag: "ack" }
    /** Not now: deliver it again, after this many milliseconds; null = the queue's backoff, 0 = at once. */
    | { tag: "nack-requeue"; val: number | null }
    /** Never: to the dead-letter queue if there is one, with this reason for people. */
    | { tag: "drop"; val: string | null };
}

declare module "hostler:handler/delivery@1.0.0" {
  const delivery: {
    /** Milliseconds until this attempt is ended as a timeout. */
    deadlineMs(): number;
    /** Whether the host is stopping and would like an answer soon. */
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
