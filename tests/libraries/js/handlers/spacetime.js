import spacetime from "spacetime";

export default () => spacetime("2026-07-01T10:00:00Z", "UTC").goto("Europe/Berlin").format("{iso-short} {hour-24-pad}");
