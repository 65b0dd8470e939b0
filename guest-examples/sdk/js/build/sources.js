// The table from places in the bundle to places in the handler's own sources. It is in the component, so that a failure
// names the line of the source.

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/** Read a source map. `shown` says the name of a source, or nothing. Lines of the result count from 1, columns from 0. */
export function sources({ sources, mappings }, shown) {
  const kept = [];
  const indexes = sources.map((path) => {
    const name = shown(path);
    return name ? kept.push(name) - 1 : -1;
  });
  const lines = {};
  let [source, line] = [0, 0];
  mappings.split(";").forEach((text, at) => {
    let column = 0;
    const places = [];
    for (const segment of text ? text.split(",") : []) {
      const [columns, sourceDelta, lineDelta] = numbers(segment);
      column += columns;
      if (sourceDelta === undefined) continue;
      source += sourceDelta;
      line += lineDelta;
      const place = [column, indexes[source], indexes[source] < 0 ? 0 : line + 1];
      const before = places.at(-1);
      if (!before || before[1] !== place[1] || before[2] !== place[2]) places.push(place);
    }
    if (places.some(([, index]) => index >= 0)) lines[at + 1] = places;
  });
  return { sources: kept, lines };
}

function numbers(segment) {
  const found = [];
  let [value, shift] = [0, 0];
  for (const character of segment) {
    const digit = DIGITS.indexOf(character);
    value |= (digit & 31) << shift;
    shift += 5;
    if (digit & 32) continue;
    found.push(value & 1 ? -(value >> 1) : value >> 1);
    [value, shift] = [0, 0];
  }
  return found;
}
