import winston from "winston";

export default async () => {
  const logger = winston.createLogger({ transports: [new winston.transports.Console()] });
  logger.info("charged", { order: "o-1" });
  return "logged";
};
