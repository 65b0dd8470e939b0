import OpenAI from "openai";

export default async (url) => {
  const client = new OpenAI({ apiKey: "key", baseURL: `${url}/openai`, maxRetries: 0 });
  const answer = await client.chat.completions.create({ model: "m", messages: [{ role: "user", content: "hi" }] });
  return answer.choices[0].message.content;
};
