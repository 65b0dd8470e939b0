import logging from "wasi:logging/logging@0.1.0-draft";

const at = (level) => (text, fields) => logging.log(level, "", fields ? `${text} ${JSON.stringify(fields)}` : String(text));

export const log = { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
