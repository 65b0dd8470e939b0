import { parse } from "csv-parse/sync";

export default () => JSON.stringify(parse('id,name\n1,"Ada, L."\n', { columns: true }));
