import { z } from "zod";

const Order = z.object({ id: z.string(), cents: z.number().int().positive() });

export default () => {
  const { error } = Order.safeParse({ id: "o-1", cents: -1 });
  return `${Order.parse({ id: "o-1", cents: 5 }).cents} ${error.issues[0].path}`;
};
