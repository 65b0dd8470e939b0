import { Resend } from "resend";

export default async (url) => {
  const resend = new Resend("re_key", { baseUrl: `${url}/resend` });
  const { data, error } = await resend.emails.send({ from: "a@x.eu", to: "b@x.eu", subject: "hi", html: "<p>hi</p>" });
  return data?.id ?? error.message;
};
