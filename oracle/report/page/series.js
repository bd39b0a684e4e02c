"use strict";
// Step scalars of both legs as exact float64 columns, and the numbers that are shown of them.

// Inverse of `series.packed`: inflate, put byte planes together, undo the XOR with the first leg.
async function unpack(series) {
  if (typeof DecompressionStream === "undefined") {
    throw new Error("this browser is older than 2023 and cannot inflate them (it has no DecompressionStream)");
  }
  const packed = Uint8Array.from(atob(series.bytes), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const num = series.num;
  const views = [];
  const columns = new Map();
  series.columns.forEach(({ name, leg, xor }, place) => {
    const view = new Uint8Array(num * 8);
    for (let plane = 0; plane < 8; plane++) {
      const start = (place * 8 + plane) * num;
      for (let i = 0; i < num; i++) view[i * 8 + plane] = bytes[start + i];
    }
    if (xor !== null) for (let k = 0; k < view.length; k++) view[k] ^= views[xor][k];
    views.push(view);
    columns.set(leg === null ? name : `${name}.${leg}`, new Float64Array(view.buffer));
  });
  return columns;
}

// As Python writes a float, so that the page, the JSON and the terminal show the same digits.
function repr(value, whole = false) {
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "Infinity" : "-Infinity";
  if (whole && Number.isInteger(value)) return String(value);
  if (value === 0) return Object.is(value, -0) ? "-0.0" : "0.0";
  const [digits, exponent] = value.toExponential().split("e");
  const power = Number(exponent);
  if (power < -4 || power >= 16) {
    const size = String(Math.abs(power)).padStart(2, "0");
    return `${digits}e${power < 0 ? "-" : "+"}${size}`;
  }
  if (power >= 0) return Number.isInteger(value) ? `${BigInt(value)}.0` : String(value);
  const sign = value < 0 ? "-" : "";
  return `${sign}0.${"0".repeat(-power - 1)}${digits.replace(/[-.]/g, "")}`;
}

function short(value) {
  if (Number.isNaN(value)) return "–";
  if (value === 0 || !Number.isFinite(value)) return value === 0 ? "0" : String(value);
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e6) return String(Number(value.toPrecision(size < 1e3 ? 3 : 6)));
  const [mantissa, exponent] = value.toExponential(2).split("e");
  return `${Number(mantissa)}e${Number(exponent)}`;
}

// As `series.relative_difference`; `scale` is given where a column has one for the whole run.
function relativeDifference(a, b, scale) {
  if (a === b) return 0;
  if (Number.isFinite(a) !== Number.isFinite(b)) return Infinity;
  return Math.abs(a - b) / (scale ?? Math.max(Math.abs(a), Math.abs(b)));
}

const MANTISSA_BITS = { float64: 52, float32: 23, bfloat16: 7, float16: 10 };

function ulps(a, b, precision, scale) {
  const larger = scale ?? Math.max(Math.abs(a), Math.abs(b));
  if (a === b || !Number.isFinite(larger)) return a === b ? 0 : NaN;
  let exponent = Math.floor(Math.log2(larger));
  if (2 ** exponent > larger) exponent -= 1;
  if (2 ** (exponent + 1) <= larger) exponent += 1;
  return Math.abs(a - b) / 2 ** (exponent - MANTISSA_BITS[precision]);
}

// Index of the step nearest to `step` in an ascending column.
function nearest(steps, step) {
  let low = 0;
  let high = steps.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle] < step) low = middle + 1;
    else high = middle;
  }
  return low > 0 && step - steps[low - 1] <= steps[low] - step ? low - 1 : low;
}
