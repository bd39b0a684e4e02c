// What the drawings share: shapes, axes, and which of many steps are drawn.

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { left: 62, right: 12, top: 10, between: 30, bottom: 24 };

function shape(parent, tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

// Indices [from, to] of a view, at most four a pixel, extremes kept.
function visibleIndices(values, from, to, pixels) {
  const count = to - from + 1;
  if (count <= 2 * pixels) return Array.from({ length: count }, (_, k) => from + k);
  const indices = [];
  for (let pixel = 0; pixel < pixels; pixel++) {
    const start = from + Math.floor((pixel * count) / pixels);
    const end = from + Math.floor(((pixel + 1) * count) / pixels) - 1;
    let least = start;
    let most = start;
    let broken = -1;
    for (let i = start; i <= end; i++) {
      if (!Number.isFinite(values[i])) broken = i;
      if (values[i] < values[least] || !Number.isFinite(values[least])) least = i;
      if (values[i] > values[most] || !Number.isFinite(values[most])) most = i;
    }
    const kept = new Set([start, least, most, end]);
    if (broken >= 0) kept.add(broken);
    indices.push(...[...kept].sort((x, y) => x - y));
  }
  return indices;
}

function pathOf(indices, x, y) {
  let path = "";
  let open = false;
  for (const i of indices) {
    const height = y(i);
    if (!Number.isFinite(height)) {
      open = false;
      continue;
    }
    path += `${open ? "L" : "M"}${x(i).toFixed(1)} ${height.toFixed(1)}`;
    open = true;
  }
  return path;
}

function niceTicks(low, high, count) {
  const raw = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((size) => size >= raw * (1 - 1e-9)) ?? raw;
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) ticks.push(k * step);
  return ticks;
}

// As many digits as tell ticks apart that are `step` from each other.
function tickLabel(tick, step) {
  const size = Math.abs(tick);
  if (size === 0 || !(step > 0)) return short(tick);
  const digits = Math.floor(Math.log10(size) + 1e-9) - Math.floor(Math.log10(step) + 1e-9);
  if (size < 1e-3 || size >= 1e6) {
    const [mantissa, exponent] = tick.toExponential(Math.max(0, digits)).split("e");
    return `${mantissa}e${Number(exponent)}`;
  }
  return tick.toFixed(Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
}

function finiteRange(columns, from, to) {
  let low = Infinity;
  let high = -Infinity;
  for (const values of columns) {
    for (let i = from; i <= to; i++) {
      if (!Number.isFinite(values[i])) continue;
      if (values[i] < low) low = values[i];
      if (values[i] > high) high = values[i];
    }
  }
  return [low, high];
}

const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
function tenTo(power) {
  const digits = [...String(Math.abs(power))].map((d) => SUPERSCRIPTS[Number(d)]).join("");
  return `10${power < 0 ? "⁻" : ""}${digits}`;
}
