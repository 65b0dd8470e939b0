import { request } from "undici";

export default async (url) => (await request(`${url}/json`)).statusCode;
