import { nanoid } from "nanoid";

export default () => `${nanoid().length} ${nanoid() !== nanoid()}`;
