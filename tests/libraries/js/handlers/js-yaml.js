import * as yaml from "js-yaml";

export default () => `${yaml.load("a:\n  - 1\n  - 2").a.length} ${yaml.dump({ a: 1 }).trim()}`;
