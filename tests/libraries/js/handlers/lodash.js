import _ from "lodash";

export default () => `${_.template("Hello <%= name %>")({ name: "Ada" })} ${_.chunk([1, 2, 3], 2).length}`;
