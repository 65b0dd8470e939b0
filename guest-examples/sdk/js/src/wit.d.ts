// The types of hostler's WIT, for handlers that use it directly. Import each interface as a default:
// `import publisher from "hostler:handler/publisher@1.2.0"`. A `u64` is a bigint in StarlingMonkey, and a number in QuickJS.

type U64 = bigint | number;

declare module "hostler:handler/types@1.2.0" {
  export interface Message {
    id: string;
    queue: string;
    body: Uint8Array;
    headers: [name: string, value: string][];
    attempt: number;
    maxAttempts: number;
    enqueuedMs: U64;
  }
  export type Outcome =
    | { tag: "ack" }
    | { tag: "nack-requeue"; val?: U64 | undefined }
    | { tag: "drop"; val?: string | undefined };
  /** What a module exports as `messageHandler`, with or without `async`. */
  export interface MessageHandler {
    handle(message: Message): Outcome | Promise<Outcome>;
  }
}

declare module "hostler:handler/delivery@1.2.0" {
  const delivery: {
    deadlineMs(): U64;
    isCancelled(): boolean;
    traceContext(): [traceparent: string | undefined, tracestate: string | undefined];
  };
  export default delivery;
}

declare module "hostler:handler/publisher@1.2.0" {
  interface Outgoing {
    body: Uint8Array;
    headers: [name: string, value: string][];
    delayMs?: U64 | undefined;
  }
  const publisher: { publish(queue: string, message: Outgoing): void };
  export default publisher;
}

declare module "hostler:handler/key-value@1.2.0" {
  const keyValue: {
    get(key: string): Uint8Array | undefined;
    set(key: string, value: Uint8Array, ttlMs?: U64): void;
    delete(key: string): void;
    increment(key: string, delta: U64): U64;
  };
  export default keyValue;
}

declare module "hostler:handler/flow@1.2.0" {
  const flow: { hold(ms: U64): void };
  export default flow;
}

declare module "hostler:handler/reply@1.2.0" {
  const reply: { set(value: Uint8Array): void };
  export default reply;
}

declare module "hostler:handler/journal@1.2.0" {
  const journal: {
    recall(name: string): Uint8Array | undefined;
    remember(name: string, value: Uint8Array): void;
  };
  export default journal;
}

declare module "hostler:handler/secrets@1.2.0" {
  const secrets: { get(name: string): string };
  export default secrets;
}

declare module "hostler:handler/http@1.2.0" {
  interface Request {
    method: string;
    url: string;
    headers: [name: string, value: Uint8Array][];
    body?: Uint8Array | undefined;
    timeoutMs?: number | undefined;
  }
  interface Response {
    status: number;
    headers: [name: string, value: Uint8Array][];
    body: Uint8Array;
  }
  const http: { fetch(request: Request): Response };
  export default http;
}
