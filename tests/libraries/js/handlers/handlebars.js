import Handlebars from "handlebars";

export default () => Handlebars.compile("Hello {{name}}{{#each items}} {{this}}{{/each}}")({ name: "<Ada>", items: [1, 2] });
