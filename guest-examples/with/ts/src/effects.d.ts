// The types of what the handler does besides answering. Each function can throw an Error: its `payload` is a
// text, or an HttpError.
// @with http

declare module "hostler:handler/http@1.2.0" {
  export interface Request {
    /** The method, such as `GET`. */
    method: string;
    /** The absolute URL, without user and password. */
    url: string;
    /** The headers. The host refuses those that it sets itself, such as `host`. */
    headers: [name: string, value: Uint8Array][];
    /** The body, if there is one. */
    body: Uint8Array | null;
    /** The call fails after this many milliseconds; null = the limit of the grant. */
    timeoutMs: number | null;
  }

  export interface Response {
    /** The status, such as 200. */
    status: number;
    /** The headers: names in lower case, values byte for byte. */
    headers: [name: string, value: Uint8Array][];
    /** The body, byte for byte. */
    body: Uint8Array;
  }

  /** Why there is no response. */
  export type HttpError =
    /** Nothing was sent. */
    | { tag: "denied" | "dns" | "connect" | "tls"; val: string }
    /** The server may have handled the request. */
    | { tag: "timeout" }
    | { tag: "too-large"; val: number }
    | { tag: "protocol"; val: string };

  const http: {
    /** Send a request and wait for the whole response. */
    fetch(request: Request): Response;
  };
  export default http;
}
// @end
// @with key-value

declare module "hostler:handler/key-value@1.2.0" {
  const keyValue: {
    /** The value of a key; null = it has no value. Sees what this attempt has set and deleted. */
    get(key: string): Uint8Array | null;
    /** Set a value together with the acknowledgement; it expires this many milliseconds later, null = never. */
    set(key: string, value: Uint8Array, ttlMs: number | null): void;
    /** Delete a value together with the acknowledgement. */
    delete(key: string): void;
    /** Add to a number at once, and return the sum. A message that is handled twice adds twice. */
    increment(key: string, delta: number): number;
  };
  export default keyValue;
}
// @end
// @with publish

declare module "hostler:handler/publisher@1.2.0" {
  export interface Outgoing {
    /** The body, byte for byte. */
    body: Uint8Array;
    /** The headers. */
    headers: [name: string, value: string][];
    /** Deliver the message after this many milliseconds. */
    delayMs: number | null;
  }

  const publisher: {
    /** Publish to a queue, together with the acknowledgement of the current message. */
    publish(queue: string, message: Outgoing): void;
  };
  export default publisher;
}
// @end
// @with secrets

declare module "hostler:handler/secrets@1.2.0" {
  const secrets: {
    /** The present value of a secret. It can change while the handler runs. */
    get(name: string): string;
  };
  export default secrets;
}
// @end
