import got from "got";

export default async (url) => (await got.post(`${url}/json`, { json: { a: 1 } }).json()).body;
