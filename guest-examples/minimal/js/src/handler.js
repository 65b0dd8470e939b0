// A handler: it acks every message.

export const messageHandler = {
  handle(message) {
    return { tag: "ack" };
  },
};
