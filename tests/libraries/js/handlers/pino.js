import pino from "pino";

export default () => {
  pino().info({ order: "o-1" }, "charged");
  return "logged";
};
