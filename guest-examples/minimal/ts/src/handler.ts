import { bytes, handler } from "hostler";

export default handler(bytes, async (body, message) => {
  console.log(`attempt ${message.attempt}: ${body.length} bytes`);
});
