import dayjs from "dayjs";
import utc from "dayjs/plugin/utc.js";

dayjs.extend(utc);

export default () => dayjs.utc("2026-01-31").add(1, "month").format("YYYY-MM-DD");
