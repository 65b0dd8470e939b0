/** Give the message up: it becomes a dead letter with this reason. */
export class Drop extends Error {
  name = "Drop";
}

/** Try again after so many milliseconds, and not after the backoff of the queue. */
export class RetryAfter extends Error {
  name = "RetryAfter";

  constructor(ms, message = `again in ${ms} ms`) {
    super(message);
    this.ms = ms;
  }
}
