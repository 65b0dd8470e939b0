import { parse } from "csv-parse";

export default async () => {
  const names = [];
  const parser = parse('id,name\n1,"Ada, L."\n2,Bob\n', { columns: true });
  for await (const { name } of parser) names.push(name);
  return names.join("; ");
};
