import { v4, v5, v7, validate } from "uuid";

export default () => `${validate(v4())} ${v4() !== v4()} ${validate(v7())} ${v5("a", v5.DNS)}`;
