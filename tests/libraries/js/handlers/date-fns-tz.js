import { formatInTimeZone } from "date-fns-tz";

export default () => formatInTimeZone(new Date("2026-07-01T10:00:00Z"), "Europe/Berlin", "yyyy-MM-dd HH:mm");
