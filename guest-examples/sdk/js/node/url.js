const { URL, URLSearchParams } = globalThis;
const parse = (text, isQueryParsed) => {
  const url = new URL(text, "http://localhost");
  const { protocol, host, hostname, port, pathname, search, hash, href } = url;
  const query = isQueryParsed ? Object.fromEntries(url.searchParams) : search.slice(1);
  return { protocol, host, hostname, port, pathname, search, hash, href, query, path: pathname + search };
};
const format = (url) => (typeof url === "string" ? url : (url.href ?? String(url)));
const fileURLToPath = (url) => new URL(url).pathname;
const pathToFileURL = (path) => new URL(`file://${path}`);
export { URL, URLSearchParams, fileURLToPath, format, parse, pathToFileURL };
export default { URL, URLSearchParams, fileURLToPath, format, parse, pathToFileURL };
