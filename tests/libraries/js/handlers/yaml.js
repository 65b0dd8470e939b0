import { parse, stringify } from "yaml";

export default () => `${parse("a:\n  - 1\n  - 2").a.length} ${stringify({ a: 1 }).trim()}`;
