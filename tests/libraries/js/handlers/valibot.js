import * as v from "valibot";

const Order = v.object({ id: v.string(), cents: v.pipe(v.number(), v.minValue(1)) });

export default () => `${v.parse(Order, { id: "o-1", cents: 5 }).cents} ${v.safeParse(Order, { id: "o-1", cents: 0 }).success}`;
