import Ajv from "ajv";

export default () => {
  const validate = new Ajv().compile({ type: "object", properties: { cents: { type: "integer" } }, required: ["cents"] });
  return `${validate({ cents: 5 })} ${validate({})} ${validate.errors[0].keyword}`;
};
