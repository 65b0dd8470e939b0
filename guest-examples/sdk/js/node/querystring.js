export const stringify = (values) => {
  const pairs = Object.entries(values).flatMap(([name, value]) => [value].flat().map((one) => [name, String(one ?? "")]));
  return new URLSearchParams(pairs).toString();
};
export const parse = (text) => {
  const values = new URLSearchParams(text);
  return Object.fromEntries([...new Set(values.keys())].map((name) => [name, values.getAll(name)].map((one) => (Array.isArray(one) && one.length === 1 ? one[0] : one))));
};
export const { escape, unescape } = { escape: encodeURIComponent, unescape: decodeURIComponent };
export default { decode: parse, encode: stringify, escape, parse, stringify, unescape };
