import Mustache from "mustache";

export default () => Mustache.render("Hello {{name}}{{#items}} {{.}}{{/items}}", { name: "<Ada>", items: [1, 2] });
