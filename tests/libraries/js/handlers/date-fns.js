import { addDays, formatISO, parseISO } from "date-fns";

export default () => formatISO(addDays(parseISO("2026-01-31"), 1), { representation: "date" });
