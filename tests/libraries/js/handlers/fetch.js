export default async (url) => {
  const response = await fetch(`${url}/json`, { method: "POST", body: JSON.stringify({ a: 1 }) });
  const { method, body } = await response.json();
  return `${response.status} ${method} ${body}`;
};
