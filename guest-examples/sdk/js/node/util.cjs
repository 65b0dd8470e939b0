const util = require("util/");

module.exports = { ...util, TextDecoder, TextEncoder, stripVTControlCharacters: (text) => text };
