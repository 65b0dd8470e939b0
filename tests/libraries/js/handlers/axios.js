import axios from "axios";

export default async (url) => {
  const { data, status } = await axios.post(`${url}/json`, { a: 1 });
  const missing = await axios.get(`${url}/status/404`).catch((error) => error.response.status);
  return `${status} ${data.method} ${data.body} ${missing}`;
};
