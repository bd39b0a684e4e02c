// The whole run at a glance: a row a phase, a place a step. Where several steps share a pixel, the
// worst of them is drawn, so that one step in ten thousand is seen.

const WITHIN = 0;
const NOT_JUDGED = 1;
const PARTED = 2;
const ROW = 9;
const BETWEEN_ROWS = 3;
const STATES = [[WITHIN, "within"], [NOT_JUDGED, "unjudged"], [PARTED, "parted"]];

// State of every step of one row of the table: exact columns are equal or not, numbers have a rule.
function statesOf(field, columns, scale) {
  const present = { a: columns.get("present.a"), b: columns.get("present.b") };
  const equal = columns.get(`${field.name}.equal`);
  const [a, b] = [columns.get(`${field.name}.a`), columns.get(`${field.name}.b`)];
  const allowed = columns.get(`${field.name}.allowed`);
  return Uint8Array.from(present.a, (_, i) => {
    if (present.a[i] !== present.b[i]) return PARTED;
    if (equal) return equal[i] === 1 ? WITHIN : PARTED;
    if (field.exact) return a[i] === b[i] ? WITHIN : PARTED;
    const apart = relativeDifference(a[i], b[i], scale);
    if (allowed === undefined || Number.isNaN(allowed[i])) return apart === 0 ? WITHIN : NOT_JUDGED;
    return apart > allowed[i] ? PARTED : WITHIN;
  });
}

function mapRows(fields, columns, scales) {
  const rows = new Map();
  for (const field of fields.filter(({ kind }) => kind !== "sparse")) {
    const states = statesOf(field, columns, scales[field.name]);
    const row = rows.get(field.phase);
    if (row === undefined) rows.set(field.phase, states);
    else states.forEach((state, i) => { row[i] = Math.max(row[i], state); });
  }
  return [...rows].map(([phase, states]) => ({ phase, states }));
}

class RunMap {
  constructor(holder, { steps, rows }) {
    Object.assign(this, { holder, steps, rows });
    this.svg = shape(holder, "svg", { "aria-hidden": "true", focusable: "false" });
  }

  x(i) {
    const [low, high] = [this.steps[0], this.steps[this.steps.length - 1]];
    return this.left + ((this.steps[i] - low) / Math.max(1, high - low)) * this.width;
  }

  indexAt(pixel) {
    const [low, high] = [this.steps[0], this.steps[this.steps.length - 1]];
    const share = Math.min(1, Math.max(0, (pixel - this.left) / this.width));
    return nearest(this.steps, low + share * (high - low));
  }

  draw() {
    const width = Math.max(240, this.holder.clientWidth);
    this.left = MARGIN.left;
    this.width = width - MARGIN.left - MARGIN.right;
    this.height = this.rows.length * (ROW + BETWEEN_ROWS) + BETWEEN_ROWS;
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
    this.svg.setAttribute("height", this.height);
    this.cursor = shape(this.svg, "g", { class: "cursor" }); // behind the rows: it hides no step
    this.rows.forEach(({ phase, states }, place) => {
      const y = BETWEEN_ROWS + place * (ROW + BETWEEN_ROWS);
      shape(this.svg, "text", { class: "tick end", x: this.left - 6, y: y + ROW - 0.5 }, phase);
      const worst = this.worstOfPixels(states);
      for (const [state, name] of STATES) {
        const d = this.runs(worst, state, y);
        if (d) shape(this.svg, "path", { class: name, d });
      }
    });
    this.frame = shape(this.svg, "g", { class: "frame" });
  }

  worstOfPixels(states) {
    const worst = new Int8Array(Math.ceil(this.width)).fill(-1);
    const half = this.width / Math.max(1, this.steps[this.steps.length - 1] - this.steps[0]) / 2;
    states.forEach((state, i) => {
      const at = this.x(i) - this.left;
      const least = state === PARTED ? 1.5 : 0.5; // what parted is three pixels wide at least
      const from = Math.max(0, Math.round(at - Math.max(half, least)));
      const to = Math.min(worst.length, Math.max(from + 1, Math.round(at + Math.max(half, least))));
      for (let pixel = from; pixel < to; pixel++) worst[pixel] = Math.max(worst[pixel], state);
    });
    return worst;
  }

  runs(worst, state, y) {
    let d = "";
    for (let start = 0; start < worst.length; start++) {
      if (worst[start] !== state) continue;
      let end = start;
      while (worst[end] === state) end++;
      d += `M${this.left + start} ${y}h${end - start}v${ROW}h${start - end}z`;
      start = end;
    }
    return d;
  }

  // Dim what the charts do not show, indices [from, to] being what they do.
  show(from, to) {
    this.frame.replaceChildren();
    if (from === 0 && to === this.steps.length - 1) return;
    const [left, right, end] = [this.x(from), this.x(to), this.left + this.width];
    const d = `M${this.left} 0H${left}V${this.height}H${this.left}zM${right} 0H${end}V${this.height}H${right}z`;
    shape(this.frame, "path", { class: "dim", d });
    shape(this.frame, "path", { class: "window", d: `M${left} .5H${right}V${this.height - 0.5}H${left}z` });
  }

  point(i) {
    this.cursor.replaceChildren();
    shape(this.cursor, "path", { d: `M${this.x(i)} 0V${this.height}` });
  }
}
