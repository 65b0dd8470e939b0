import { SignJWT, jwtVerify } from "jose";

export default async () => {
  const key = new TextEncoder().encode("a secret of at least 32 bytes, so it is");
  const token = await new SignJWT({ sub: "ada" }).setProtectedHeader({ alg: "HS256" }).setExpirationTime("1h").sign(key);
  const { payload } = await jwtVerify(token, key);
  const forged = await jwtVerify(token, new TextEncoder().encode("another secret of at least 32 bytes, ok")).catch((error) => error.code);
  return `${payload.sub} ${forged}`;
};
