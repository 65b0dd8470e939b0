// Globals of Node.js. The bundle has those that the code names.
export { Buffer } from "buffer/";
export { default as process } from "../node/process.js";
