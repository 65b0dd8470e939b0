import ky from "ky";

export default async (url) => {
  const { method, body } = await ky.post(`${url}/json`, { json: { a: 1 } }).json();
  const missing = await ky.get(`${url}/status/404`).catch((error) => error.response.status);
  return `${method} ${body} ${missing}`;
};
