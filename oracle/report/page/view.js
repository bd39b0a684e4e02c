// Which steps the charts show: indices `state.from` to `state.to` of page.js, last included.

const LEAST_VIEW = 2; // steps beside the first: three points still make a curve

function isZoomed() {
  return columns !== null && (state.from > 0 || state.to < lastIndex());
}

function draw() {
  for (const chart of charts) chart.draw(state.from, state.to);
  map.show(state.from, state.to);
  showCursor();
}

// Choose the indices that are shown, as near to [from, to] as the run and the least view allow.
function frame(from, to) {
  const last = lastIndex();
  const size = Math.min(last, Math.max(Math.min(LEAST_VIEW, last), Math.round(to - from)));
  state.from = Math.max(0, Math.min(Math.round(from), last - size));
  state.to = state.from + size;
}

function view(from, to) {
  frame(from, to);
  draw();
  address();
}

// Make the view `factor` times as wide; index `at` stays where it is on the screen.
function zoomAt(at, factor) {
  const size = state.to - state.from;
  const grown = factor > 1 ? Math.max(size + 1, size * factor) : Math.min(size - 1, size * factor);
  const wanted = Math.max(LEAST_VIEW, grown);
  const share = size === 0 ? 0.5 : (at - state.from) / size;
  view(at - share * wanted, at + (1 - share) * wanted);
}

function zoom(factor) {
  const size = Math.max(LEAST_VIEW, Math.round((state.to - state.from) * factor));
  view(state.index - (size >> 1), state.index - (size >> 1) + size);
}

// Move the view by a share of its width; false where there is nowhere to go.
function move(share) {
  if (!isZoomed()) return false;
  const size = state.to - state.from;
  const steps = Math.sign(share) * Math.max(1, Math.round(Math.abs(share) * size));
  view(state.from + steps, state.to + steps);
  return true;
}
