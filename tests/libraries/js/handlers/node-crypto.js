import { createHash, createHmac, randomBytes, timingSafeEqual } from "node:crypto";

export default () => {
  const mac = createHmac("sha256", "key").update("text").digest("hex");
  const same = timingSafeEqual(createHash("sha256").update("a").digest(), createHash("sha256").update(Buffer.from("a")).digest());
  return `${mac.slice(0, 8)} ${same} ${randomBytes(4).length}`;
};
