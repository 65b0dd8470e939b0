import { DateTime } from "luxon";

export default () => DateTime.fromISO("2026-07-01T10:00:00Z").setZone("Europe/Berlin").toFormat("yyyy-MM-dd HH:mm");
