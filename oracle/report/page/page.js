// The page's state is a step, a phase and a view; the address carries all three. Everything that is
// shown is derived from it by `show`.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const state = { index: 0, phase: null, at: -1, from: 0, to: 0 };
const ADDRESS_MILLISECONDS = 120; // browsers refuse an address that changes with every move
let columns = null; // null also where the curves cannot be read: the rest of the page still works
let charts = [];
let map = null;
let addressTimer = 0;

const lastIndex = () => columns.get("step").length - 1;
const stepOf = (index) => columns.get("step")[index];

function showPhase() {
  for (const link of document.querySelectorAll(".strip a")) {
    const chosen = link.dataset.phase === state.phase;
    if (chosen) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  for (const about of document.querySelectorAll(".about")) {
    about.hidden = about.id !== `about-${state.phase}`;
  }
  const current = data.divergences[state.at];
  for (const node of document.querySelectorAll("[data-divergence]")) {
    const chosen = current !== undefined && node.dataset.divergence === current.id;
    node.classList.toggle("current", chosen);
    if (chosen) node.closest("details")?.setAttribute("open", "");
  }
}

function readout(chart, index) {
  const { allowed, name, residual } = chart;
  const parts = [];
  for (const [leg, label] of [["a", data.legs[0]], ["b", data.legs[1]]]) {
    parts.push({ kind: leg, label, text: shown(name, leg, index) });
  }
  const kind = chart.isOver(index) ? "over" : "relative";
  parts.push({ kind, label: "relative", text: short(residual[index]) });
  if (allowed) parts.push({ kind: "allowed", label: "allowed", text: Number.isNaN(allowed[index]) ? "not judged" : short(allowed[index]) });
  return parts;
}

function showCursor() {
  const step = stepOf(state.index);
  for (const chart of charts) {
    chart.point(state.index);
    const parts = readout(chart, state.index);
    chart.readout.replaceChildren(
      ...parts.map(({ kind, label, text }) => {
        const part = element("span", `part ${kind}`);
        part.append(element("i", "", label), " ", element("b", "", text));
        return part;
      }),
    );
    chart.holder.setAttribute("aria-valuenow", step);
    const spoken = parts.map(({ label, text }) => `${label} ${text}`).join(", ");
    chart.holder.setAttribute("aria-valuetext", `step ${step}: ${spoken}`);
  }
  map.point(state.index);
  if (document.activeElement !== byId("step")) byId("step").value = step;
  byId("at").textContent = step;
  byId("rows").replaceChildren(...tableRows(step));
}

function address() {
  clearTimeout(addressTimer);
  addressTimer = setTimeout(() => {
    const query = new URLSearchParams();
    if (columns) query.set("step", stepOf(state.index));
    if (state.phase) query.set("phase", state.phase);
    if (isZoomed()) query.set("view", `${stepOf(state.from)}-${stepOf(state.to)}`);
    history.replaceState(null, "", `?${query}`);
  }, ADDRESS_MILLISECONDS);
}

function show({ moved = true } = {}) {
  showPhase();
  if (columns) showCursor();
  if (moved) address();
}

function say(text) {
  const said = byId("said");
  if (said) said.textContent = text;
}

function goTo(index) {
  state.index = Math.min(lastIndex(), Math.max(0, index));
  if (state.index < state.from || state.index > state.to) {
    const half = (state.to - state.from) >> 1;
    view(state.index - half, state.index + half);
  }
  show();
}

function goToStep(step) {
  if (columns) goTo(nearest(columns.get("step"), step));
}

// Divergence number `at` of the list in causal order: step, phase, and its own entry on the page.
function jump(at, { scroll = true } = {}) {
  if (data.divergences.length === 0) return;
  state.at = Math.min(data.divergences.length - 1, Math.max(0, at));
  const item = data.divergences[state.at];
  state.phase = item.phase;
  if (item.step !== null && columns) goToStep(item.step);
  else show();
  say(`Divergence ${state.at + 1} of ${data.divergences.length}, ${item.words}`);
  if (scroll && !columns) byId(`d-${state.at}`)?.scrollIntoView({ block: "nearest" });
}

const KEYS = {
  ArrowLeft: (event) => goTo(state.index - (event.shiftKey ? 10 : 1)),
  ArrowRight: (event) => goTo(state.index + (event.shiftKey ? 10 : 1)),
  Home: () => goTo(0),
  End: () => goTo(lastIndex()),
  "+": () => zoom(0.5),
  "=": () => zoom(0.5),
  "-": () => zoom(2),
  0: () => view(0, Infinity),
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  const target = event.target;
  if (target.closest("input, textarea, select")) return;
  const scrolls = target.scrollWidth > target.clientWidth && target.matches(".scroll, .tokens");
  if (event.key === "n" || event.key === "p") jump(state.at + (event.key === "n" ? 1 : -1));
  else if (event.key === "?") byId("keys").showModal();
  else if (columns && KEYS[event.key] && !scrolls) KEYS[event.key](event);
  else return;
  event.preventDefault();
}

function onLink(event) {
  if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  const link = event.target.closest("a[data-phase], a[data-index]");
  if (!link) return;
  event.preventDefault();
  if (link.dataset.index !== undefined) {
    jump(Number(link.dataset.index), { scroll: false });
    return;
  }
  state.phase = link.dataset.phase;
  state.at = data.divergences.findIndex((item) => item.phase === state.phase);
  const step = link.dataset.step ?? data.divergences[state.at]?.step ?? null;
  if (step !== null && columns) goToStep(Number(step));
  else show();
}

function buildChart(panel) {
  const name = panel.dataset.field;
  const holder = panel.querySelector(".plot");
  const marks = data.divergences
    .filter((item) => item.step !== null)
    .map((item) => ({ step: item.step, first: item.id === data.first }));
  const [steps, a, b] = ["step", `${name}.a`, `${name}.b`].map((key) => columns.get(key));
  const allowed = columns.get(`${name}.allowed`);
  const present = { a: columns.get("present.a"), b: columns.get("present.b") };
  const [scale, tall] = [data.scales[name], name === "loss"];
  const chart = new Chart(holder, { steps, a, b, present, scale, allowed, marks, tall });
  chart.name = name;
  chart.readout = panel.querySelector(".readout");
  holder.setAttribute("aria-valuemin", steps[0]);
  holder.setAttribute("aria-valuemax", steps[steps.length - 1]);
  withGestures(chart, { goTo, view, zoomAt, move });
  return chart;
}

function buildMap() {
  const steps = columns.get("step");
  const holder = byId("map").querySelector(".plot");
  byId("map").hidden = false;
  const made = new RunMap(holder, { steps, rows: mapRows(data.fields, columns, data.scales) });
  const point = (event) => goTo(made.indexAt(event.clientX - holder.getBoundingClientRect().left));
  holder.addEventListener("pointerdown", (event) => {
    holder.setPointerCapture(event.pointerId);
    point(event);
  });
  holder.addEventListener("pointermove", (event) => {
    if (event.buttons) point(event);
  });
  return made;
}

// What the address asks for, as far as it exists; otherwise the first divergence, or the worst step.
function startState(query) {
  const first = data.divergences.findIndex((item) => item.id === data.first);
  const known = byId(`about-${query.get("phase")}`) !== null;
  state.phase = known ? query.get("phase") : data.divergences[first]?.phase ?? null;
  const step = /^\d+$/.test(query.get("step") ?? "") ? Number(query.get("step")) : null;
  state.at = data.divergences.findIndex(
    (item) => item.phase === state.phase && (step === null || item.step === step),
  );
  if (columns === null) return;
  const begin = data.divergences[state.at]?.step ?? data.divergences[first]?.step ?? data.worst ?? Infinity;
  state.index = nearest(columns.get("step"), Math.min(step ?? begin, stepOf(lastIndex())));
}

function startCurves(query) {
  const steps = columns.get("step");
  Object.assign(byId("step"), { min: steps[0], max: steps[lastIndex()] });
  byId("step").addEventListener("input", (event) => {
    if (event.target.value !== "") goToStep(Number(event.target.value));
  });
  byId("in").addEventListener("click", () => zoom(0.5));
  byId("out").addEventListener("click", () => zoom(2));
  byId("all").addEventListener("click", () => view(0, Infinity));
  map = buildMap();
  charts = [...document.querySelectorAll(".panel")].map(buildChart);
  const asked = /^(\d+)-(\d+)$/.exec(query.get("view") ?? "");
  const ends = asked ? asked.slice(1).map((step) => nearest(steps, Number(step))) : [0, Infinity];
  let width = 0;
  const fit = () => {
    if (byId("charts").clientWidth === width) return;
    width = byId("charts").clientWidth;
    map.draw();
    draw();
  };
  frame(Math.min(...ends), Math.max(...ends));
  fit();
  new ResizeObserver(fit).observe(byId("charts"));
  if (data.series.num < data.series.num_steps) {
    say(`${data.series.num} of ${data.series.num_steps} steps are on this page: every extreme, every divergence.`);
  }
}

async function start() {
  const query = new URLSearchParams(location.search);
  try {
    if (data.series) columns = await unpack(data.series);
  } catch (error) {
    document.documentElement.dataset.curves = "missing";
    say(`The curves cannot be drawn: ${error.message}. The traces and the JSON verdict hold every value.`);
  }
  startState(query);
  document.addEventListener("keydown", onKey);
  document.addEventListener("click", onLink);
  for (const box of document.querySelectorAll("input[data-table]")) {
    const table = byId(`${box.dataset.table}-table`);
    box.addEventListener("change", () => table.classList.toggle("only", box.checked));
  }
  byId("next")?.addEventListener("click", () => jump(state.at + 1));
  byId("previous")?.addEventListener("click", () => jump(state.at - 1));
  byId("help")?.addEventListener("click", () => byId("keys").showModal());
  byId("close").addEventListener("click", () => byId("keys").close());
  if (columns) startCurves(query);
  show({ moved: location.search !== "" });
  document.documentElement.dataset.ready = "true";
}

start();
