import jwt from "jsonwebtoken";

export default () => jwt.verify(jwt.sign({ sub: "ada" }, "secret"), "secret").sub;
