import http from "node:http";

export default (url) => new Promise((resolve, reject) => http.get(url, resolve).on("error", reject));
