import { WebClient } from "@slack/web-api";

export default async (url) => {
  const slack = new WebClient("token", { slackApiUrl: `${url}/slack/`, retryConfig: { retries: 0 } });
  return (await slack.chat.postMessage({ channel: "c", text: "hi" })).ts;
};
