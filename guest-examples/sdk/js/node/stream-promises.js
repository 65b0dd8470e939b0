import stream from "readable-stream";
export const { finished, pipeline } = stream.promises;
export default stream.promises;
