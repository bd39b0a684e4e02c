// Pointer and wheel on a chart. A mouse moves the cursor and selects a span by dragging; a finger
// drags the cursor; the wheel zooms with Ctrl (which a pinch on a touchpad sends) and moves with Shift.

const DRAG_PIXELS = 6;
const WHEEL_LINE_PIXELS = 16;

function withGestures(chart, { goTo, view, zoomAt, move }) {
  const { holder } = chart;
  const pixelOf = (event) => event.clientX - holder.getBoundingClientRect().left;
  let last = null; // the pixel of the latest mouse event
  let start = null; // the pixel where a drag began

  holder.addEventListener("pointerdown", (event) => {
    goTo(chart.indexAt(pixelOf(event)));
    start = event.pointerType === "mouse" && event.button === 0 ? pixelOf(event) : null;
  });
  holder.addEventListener("pointermove", (event) => {
    const pixel = pixelOf(event);
    // A resting mouse also gets events, when the page moves under it; those must not undo a key.
    if (pixel === last || (event.pointerType !== "mouse" && !event.buttons)) return;
    last = pixel;
    goTo(chart.indexAt(pixel));
    if (start === null || Math.abs(pixel - start) < DRAG_PIXELS) return;
    if (!holder.hasPointerCapture(event.pointerId)) holder.setPointerCapture(event.pointerId);
    chart.select(start, pixel);
  });
  holder.addEventListener("pointerup", (event) => {
    const dragged = start !== null && Math.abs(pixelOf(event) - start) >= DRAG_PIXELS;
    const ends = dragged ? [start, pixelOf(event)].map((pixel) => chart.indexAt(pixel)) : [];
    start = null;
    chart.select(0, 0);
    if (dragged) view(Math.min(...ends), Math.max(...ends));
  });
  holder.addEventListener("pointercancel", () => {
    start = null;
    chart.select(0, 0);
  });
  holder.addEventListener("dblclick", () => view(0, Infinity));
  holder.addEventListener("wheel", (event) => onWheel(event, chart, { zoomAt, move, pixelOf }), { passive: false });
}

function onWheel(event, chart, { zoomAt, move, pixelOf }) {
  const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? WHEEL_LINE_PIXELS : 1;
  if (event.ctrlKey || event.metaKey) {
    event.preventDefault();
    zoomAt(chart.indexAt(pixelOf(event)), Math.exp(Math.max(-1, Math.min(1, (event.deltaY * unit) / 200))));
    return;
  }
  const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
  const pixels = (Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : event.deltaY) * unit;
  if (sideways && move(pixels / chart.width)) event.preventDefault();
}
