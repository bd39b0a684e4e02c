// Charts: a plot of both legs over a plot of their difference, on one step axis. No point is averaged:
// where several steps share a pixel, the first, smallest, largest and last of them are drawn.

const LEAST_SPAN = 1e-4; // of the value axis, relative to its largest value
const ZERO_LANE = 18; // pixels under the logarithmic axis for differences of exactly 0

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
    this.selection = shape(this.svg, "g", { class: "selection" });
    this.cursor = shape(this.svg, "g", { class: "cursor" });
  }

  // Mark the pixels of a drag; nothing for an empty span.
  select(from, to) {
    this.selection.replaceChildren();
    if (from === to) return;
    const [left, right] = [Math.min(from, to), Math.max(from, to)].map((pixel) => this.inside(pixel));
    const size = { x: left, y: MARGIN.top, width: right - left, height: this.bottom - MARGIN.top };
    shape(this.selection, "rect", size);
  }

  inside(pixel) {
    return Math.min(this.left + this.width, Math.max(this.left, pixel));
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
    // A span that is next to nothing beside its values has no ticks that could be told apart.
    const room = Math.max((high - low) * 0.06, Math.abs(high) * LEAST_SPAN) || 1;
    [low, high] = [low - room, high + room];
    const yOf = (value) => top + height - ((value - low) / (high - low)) * height;
    this.yValue = yOf;
    const ticks = niceTicks(low, high, height / 40);
    for (const tick of ticks) {
      const y = yOf(tick);
      shape(this.svg, "path", { class: "grid", d: `M${this.left} ${y}h${this.width}` });
      const label = tickLabel(tick, ticks[1] - ticks[0]);
      shape(this.svg, "text", { class: "tick end", x: this.left - 6, y: y + 3.5 }, label);
    }
    for (const [leg, values] of [["a", this.a], ["b", this.b]]) {
      const shown = visibleIndices(values, this.from, this.to, this.width);
      const d = pathOf(shown, (i) => this.x(i), (i) => yOf(values[i]));
      const dense = shown.length > this.width ? " dense" : "";
      shape(this.svg, "path", { class: `curve ${leg}${dense}`, d });
      if (this.to - this.from < this.width / 16) this.drawDots(shown, (i) => yOf(values[i]), `${leg}`);
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

  // One path for all dots: thousands of circles would take a second to draw.
  drawDots(indices, y, kind) {
    const seen = indices.filter((i) => Number.isFinite(y(i)));
    const d = seen.map((i) => `M${this.x(i).toFixed(1)} ${y(i).toFixed(1)}h0`).join("");
    if (d) shape(this.svg, "path", { class: `dots ${kind}`, d });
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
    shape(this.svg, "text", { class: "tick end", x: this.left + this.width, y: top - 9 }, "relative difference");
    if (this.allowed) this.drawAllowed(yOf, lane);
    const shown = visibleIndices(this.residual, this.from, this.to, this.width);
    shape(this.svg, "path", { class: "curve residual", d: pathOf(shown, (i) => this.x(i), (i) => yOf(this.residual[i])) });
    const dots = this.to - this.from < this.width / 3;
    const over = shown.filter((i) => this.isOver(i));
    if (dots) this.drawDots(shown.filter((i) => !this.isOver(i)), (i) => yOf(this.residual[i]), "residual");
    this.drawDots(over, (i) => yOf(this.residual[i]), dots ? "over" : "over dense");
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
