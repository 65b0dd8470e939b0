// Imports a list of products: each row becomes a message, and all of them appear with the acknowledgement, or none.

import { parse } from "csv-parse/sync";
import { Drop, handler, keyValue, publish, text } from "hostler";
import { z } from "zod";

const Product = z.object({ sku: z.string().min(1), name: z.string(), cents: z.coerce.number().int().positive() });

export default handler(text, (csv, message) => {
  let rows: unknown[];
  try {
    rows = parse(csv, { columns: true, skip_empty_lines: true });
  } catch (error) {
    throw new Drop(`not a CSV file: ${(error as Error).message}`);
  }
  rows.forEach((row, at) => {
    const { data, error } = Product.safeParse(row);
    if (error) throw new Drop(`row ${at + 1}: ${error.issues[0]?.path} ${error.issues[0]?.message}`);
    publish("products", data);
  });
  keyValue.set("last-import", { message: message.id, rows: rows.length });
});
