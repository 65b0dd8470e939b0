import nunjucks from "nunjucks";

export default () => nunjucks.renderString("Hello {{ name }}{% for item in items %} {{ item }}{% endfor %}", { name: "Ada", items: [1, 2] });
