// Charts: a plot of both legs over a plot of their difference, on one step axis. No point is averaged:
// where several steps share a pixel, the first, smallest, largest and last of them are drawn.

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { left: 62, right: 12, top: 10, between: 30, bottom: 24 };
const ZERO_LANE = 14; // pixels under the logarithmic axis for differences of exactly 0

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
  const step = [1, 2, 5, 10].map((k) => k * power).find((size) => size >= raw) ?? raw;
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) ticks.push(k * step);
  return ticks;
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

class Chart {
  constructor(holder, { steps, a, b, present, scale, allowed, marks, tall }) {
    Object.assign(this, { holder, steps, a, b, present, scale, allowed, marks, tall });
    const both = (i) => present.a[i] === 1 && present.b[i] === 1;
    this.residual = a.map((value, i) => (both(i) ? relativeDifference(value, b[i], scale) : NaN));
    this.svg = shape(holder, "svg", { "aria-hidden": "true", focusable: "false" });
  }

  // Draw steps[from..to]; returns nothing. Called on resize and zoom, never on a move of the cursor.
  draw(from, to) {
    Object.assign(this, { from, to });
    const width = Math.max(240, this.holder.clientWidth);
    const [upper, lower] = this.tall ? [190, 120] : [120, 96];
    const height = MARGIN.top + upper + MARGIN.between + lower + MARGIN.bottom;
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("height", height);
    this.left = MARGIN.left;
    this.width = width - MARGIN.left - MARGIN.right;
    this.bottom = height - MARGIN.bottom;
    this.drawSteps(height);
    this.drawValues(MARGIN.top, upper);
    this.drawResidual(MARGIN.top + upper + MARGIN.between, lower);
    this.cursor = shape(this.svg, "g", { class: "cursor" });
  }

  x(i) {
    const low = this.steps[this.from];
    const high = this.steps[this.to];
    if (high === low) return this.left + this.width / 2;
    return this.left + ((this.steps[i] - low) / (high - low)) * this.width;
  }

  indexAt(pixel) {
    const low = this.steps[this.from];
    const high = this.steps[this.to];
    const share = Math.min(1, Math.max(0, (pixel - this.left) / this.width));
    return nearest(this.steps, low + share * (high - low));
  }

  drawSteps(height) {
    const low = this.steps[this.from];
    const high = this.steps[this.to];
    const ticks = high === low ? [low] : niceTicks(low, high, this.width / 90);
    for (const step of ticks.filter(Number.isInteger)) {
      const share = high === low ? 0.5 : (step - low) / (high - low);
      const at = this.left + share * this.width;
      shape(this.svg, "path", { class: "grid", d: `M${at} ${MARGIN.top}V${this.bottom}` });
      shape(this.svg, "text", { class: "tick middle", x: at, y: height - 7 }, String(step));
    }
    for (const { step, first } of this.marks) {
      if (step < low || step > high) continue;
      const at = high === low ? this.left + this.width / 2 : this.x(nearest(this.steps, step));
      if (first) shape(this.svg, "path", { class: "first", d: `M${at} ${MARGIN.top}V${this.bottom}` });
      shape(this.svg, "path", { class: "mark", d: `M${at - 4} ${this.bottom + 7}h8l-4 -7z` });
    }
  }

  drawValues(top, height) {
    let [low, high] = finiteRange([this.a, this.b], this.from, this.to);
    if (low > high) [low, high] = [0, 1];
    const room = (high - low || Math.abs(high) || 1) * 0.06;
    [low, high] = [low - room, high + room];
    const yOf = (value) => top + height - ((value - low) / (high - low)) * height;
    this.yValue = yOf;
    for (const tick of niceTicks(low, high, height / 40)) {
      const y = yOf(tick);
      shape(this.svg, "path", { class: "grid", d: `M${this.left} ${y}h${this.width}` });
      shape(this.svg, "text", { class: "tick end", x: this.left - 6, y: y + 3.5 }, short(tick));
    }
    for (const [leg, values] of [["a", this.a], ["b", this.b]]) {
      const shown = visibleIndices(values, this.from, this.to, this.width);
      const d = pathOf(shown, (i) => this.x(i), (i) => yOf(values[i]));
      shape(this.svg, "path", { class: `curve ${leg}`, d });
      if (shown.length <= 2) this.drawDots(shown, (i) => yOf(values[i]), `dot ${leg}`);
      for (const i of shown.filter((k) => !Number.isFinite(values[k]))) {
        const place = { class: `broken ${leg}`, x: this.x(i), y: leg === "a" ? top + 9 : top + 20 };
        if (this.absent(leg, i)) continue;
        shape(this.svg, "text", place, repr(values[i]));
        break;
      }
    }
  }

  absent(leg, i) {
    return this.present[leg][i] === 0;
  }

  drawDots(indices, y, kind) {
    for (const i of indices) {
      if (Number.isFinite(y(i))) shape(this.svg, "circle", { class: kind, cx: this.x(i), cy: y(i), r: 3 });
    }
  }

  drawResidual(top, height) {
    const floor = top + height - ZERO_LANE;
    const positive = [this.residual, this.allowed ?? []].map((c) => c.map((v) => (v > 0 ? v : NaN)));
    let [low, high] = finiteRange(positive, this.from, this.to);
    if (low > high) [low, high] = [1e-16, 1e-15];
    let [least, most] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
    if (most - least < 2) [least, most] = [least - 1, Math.max(most, least + 1)];
    const yOf = (value) => {
      if (!(value >= 0)) return NaN;
      if (value === 0) return floor + ZERO_LANE - 4;
      const share = (Math.log10(Math.min(value, 10 ** most)) - least) / (most - least);
      return floor - share * (floor - top);
    };
    this.yResidual = yOf;
    const every = Math.ceil((most - least) / Math.max(1, height / 26));
    for (let power = most; power >= least; power -= every) {
      const y = yOf(10 ** power);
      shape(this.svg, "path", { class: "grid", d: `M${this.left} ${y}h${this.width}` });
      shape(this.svg, "text", { class: "tick end", x: this.left - 6, y: y + 3.5 }, tenTo(power));
    }
    const lane = yOf(0);
    shape(this.svg, "path", { class: "lane", d: `M${this.left} ${lane}h${this.width}` });
    shape(this.svg, "text", { class: "tick end", x: this.left - 6, y: lane + 3.5 }, "equal");
    shape(this.svg, "text", { class: "tick", x: this.left, y: top - 9 }, "relative difference");
    if (this.allowed) this.drawAllowed(yOf, lane);
    const shown = visibleIndices(this.residual, this.from, this.to, this.width);
    shape(this.svg, "path", { class: "curve residual", d: pathOf(shown, (i) => this.x(i), (i) => yOf(this.residual[i])) });
    const dots = this.to - this.from < this.width / 3;
    const over = shown.filter((i) => this.isOver(i));
    if (dots) this.drawDots(shown.filter((i) => !this.isOver(i)), (i) => yOf(this.residual[i]), "dot residual");
    this.drawDots(over, (i) => yOf(this.residual[i]), "dot over");
  }

  isOver(i) {
    return this.allowed !== undefined && this.residual[i] > this.allowed[i];
  }

  // The band is drawn where something is judged: between 0 and what the rule allows at that step.
  drawAllowed(yOf, lane) {
    let band = "";
    let edge = "";
    let run = [];
    const close = () => {
      if (run.length > 0) {
        const half = run.length === 1 ? 4 : 0; // one judged step is still a visible band
        const points = run.map((i) => [this.x(i), yOf(this.allowed[i])]);
        if (half) points.splice(0, 1, [points[0][0] - half, points[0][1]], [points[0][0] + half, points[0][1]]);
        const top = points.map(([x, y], k) => `${k ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
        edge += top;
        band += `${top}L${points.at(-1)[0].toFixed(1)} ${lane}L${points[0][0].toFixed(1)} ${lane}Z`;
      }
      run = [];
    };
    for (const i of visibleIndices(this.allowed, this.from, this.to, this.width)) {
      if (Number.isFinite(this.allowed[i])) run.push(i);
      else close();
    }
    close();
    shape(this.svg, "path", { class: "allowed", d: band });
    shape(this.svg, "path", { class: "edge", d: edge });
  }

  // Move the cursor to index i; three points and one line, nothing else is drawn again.
  point(i) {
    this.cursor.replaceChildren();
    if (i < this.from || i > this.to) return;
    const at = this.x(i);
    shape(this.cursor, "path", { d: `M${at} ${MARGIN.top}V${this.bottom}` });
    for (const [kind, y] of [
      ["a", this.yValue(this.a[i])],
      ["b", this.yValue(this.b[i])],
      [this.isOver(i) ? "over" : "residual", this.yResidual(this.residual[i])],
    ]) {
      if (Number.isFinite(y)) shape(this.cursor, "circle", { class: `dot ${kind}`, cx: at, cy: y, r: 4 });
    }
  }
}
