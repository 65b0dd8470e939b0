import moment from "moment-timezone";

export default () => moment("2026-07-01T10:00:00Z").tz("Europe/Berlin").format("YYYY-MM-DD HH:mm");
