// The page's state is a step, a phase and a view; the address carries the first two. Everything that
// is shown is derived from it by `show`.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const state = { index: 0, phase: null, at: -1, from: 0, to: 0 };
let columns = null;
let charts = [];

function stepOf(index) {
  return columns.get("step")[index];
}

function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

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
    node.classList.toggle("current", current !== undefined && node.dataset.divergence === current.id);
  }
}

function shown(name, leg, index) {
  if (columns.get(`present.${leg}`)[index] === 0) return "absent";
  const whole = ["epoch", "num_tokens", "num_targets"].includes(name);
  return repr(columns.get(`${name}.${leg}`)[index], whole);
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
  if (document.activeElement !== byId("step")) byId("step").value = step;
  byId("at").textContent = step;
  byId("rows").replaceChildren(...tableRows(step));
}

function differenceCells(a, b, scale) {
  if (!Number.isFinite(a) || !Number.isFinite(b)) return ["–", "–", "–"];
  const ulp = ulps(a, b, data.precision, scale);
  return [short(Math.abs(a - b)), short(relativeDifference(a, b, scale)), short(ulp)];
}

function rowValues(field, step) {
  const { name, kind } = field;
  if (kind === "number") {
    const [a, b] = ["a", "b"].map((leg) => columns.get(`${name}.${leg}`)[state.index]);
    const cells = differenceCells(a, b, data.scales[name]);
    if (field.exact) cells[2] = "–"; // a count has no last place
    return [shown(name, "a", state.index), shown(name, "b", state.index), ...cells, a === b];
  }
  if (kind === "sparse") {
    const row = data.sparse.find((entry) => entry.step === step && entry.name === name);
    if (row === undefined) return null;
    const whole = name === "eval_targets";
    const texts = [row.a, row.b].map((v) => (v === null ? "absent" : repr(Number(v), whole)));
    const numbers = [row.a, row.b].map((v) => (v === null ? NaN : Number(v)));
    return [...texts, ...differenceCells(...numbers), numbers[0] === numbers[1]];
  }
  const equal = columns.get(`${name}.equal`)[state.index] === 1;
  return [equal ? "equal" : "differs", equal ? "equal" : "differs", "–", "–", "–", equal];
}

function ruleOf(field, step) {
  const broken = data.divergences.find((d) => d.step === step && d.field.endsWith(`.${field.name}`));
  if (broken) return { text: broken.rule, over: true };
  const allowed = columns.get(`${field.name}.allowed`);
  if (field.exact) return { text: `exact, ${field.clause}`, over: false };
  if (!allowed) return { text: field.clause, over: false };
  const limit = allowed[state.index];
  if (Number.isNaN(limit)) return { text: `not judged, ${field.clause}`, over: false };
  const [a, b] = ["a", "b"].map((leg) => columns.get(`${field.name}.${leg}`)[state.index]);
  return { text: `at most ${short(limit)}, ${field.clause}`, over: relativeDifference(a, b, data.scales[field.name]) > limit };
}

function tableRows(step) {
  const labels = ["", ...data.legs, "absolute", "relative", "ulps", "rule"];
  const rows = [];
  for (const field of data.fields) {
    const values = rowValues(field, step);
    if (values === null) continue;
    const equal = values.pop();
    const rule = ruleOf(field, step);
    const row = element("tr", rule.over || (field.exact && !equal) ? "over" : equal ? "equal" : "near");
    row.dataset.field = field.name;
    const head = element("th", "", field.name);
    head.scope = "row";
    row.append(head);
    [...values, rule.text].forEach((text, k) => {
      const cell = element("td", ["a", "b", "absolute", "relative", "ulps", "rule"][k], text);
      cell.dataset.label = labels[k + 1];
      if (text === "–") cell.classList.add("empty");
      row.append(cell);
    });
    rows.push(row);
  }
  return rows;
}

function show({ replace = true } = {}) {
  showPhase();
  if (columns) showCursor();
  if (!replace) return;
  const query = new URLSearchParams();
  if (columns) query.set("step", stepOf(state.index));
  if (state.phase) query.set("phase", state.phase);
  history.replaceState(null, "", `?${query}`);
}

function say(text) {
  const said = byId("said");
  if (said) said.textContent = text;
}

function goTo(index) {
  state.index = Math.min(columns.get("step").length - 1, Math.max(0, index));
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

function view(from, to) {
  const last = columns.get("step").length - 1;
  const size = Math.min(last, Math.max(Math.min(8, last), to - from));
  state.from = Math.max(0, Math.min(from, last - size));
  state.to = state.from + size;
  for (const chart of charts) chart.draw(state.from, state.to);
  showCursor();
}

function zoom(factor) {
  const half = Math.round(((state.to - state.from) * factor) / 2);
  view(state.index - half, state.index + half);
}

const KEYS = {
  ArrowLeft: (event) => goTo(state.index - (event.shiftKey ? 10 : 1)),
  ArrowRight: (event) => goTo(state.index + (event.shiftKey ? 10 : 1)),
  Home: () => goTo(0),
  End: () => goTo(Infinity),
  "+": () => zoom(0.5),
  "=": () => zoom(0.5),
  "-": () => zoom(2),
  0: () => view(0, Infinity),
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const target = event.target;
  if (target.closest("input, textarea, select")) return;
  const scrolls = target.scrollWidth > target.clientWidth && target.matches(".scroll, .tokens");
  if (event.key === "n" || event.key === "p") jump(state.at + (event.key === "n" ? 1 : -1));
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
  const move = (event) => goTo(chart.indexAt(event.clientX - holder.getBoundingClientRect().left));
  holder.addEventListener("pointerdown", move);
  let last = null;
  holder.addEventListener("pointermove", (event) => {
    // A resting mouse also gets events, when the page moves under it; those must not undo a key.
    if (event.clientX !== last && (event.pointerType === "mouse" || event.buttons)) move(event);
    last = event.clientX;
  });
  return chart;
}

function startState() {
  const query = new URLSearchParams(location.search);
  const first = data.divergences.findIndex((item) => item.id === data.first);
  const known = document.getElementById(`about-${query.get("phase")}`) !== null;
  state.phase = known ? query.get("phase") : data.divergences[first]?.phase ?? null;
  const asked = query.get("step");
  const step = asked !== null && /^\d+$/.test(asked) ? Number(asked) : null;
  state.at = data.divergences.findIndex(
    (item) => item.phase === state.phase && (step === null || item.step === step),
  );
  if (columns === null) return;
  const begin = data.divergences[state.at]?.step ?? data.divergences[first]?.step ?? data.worst ?? Infinity;
  state.index = nearest(columns.get("step"), Math.min(step ?? begin, stepOf(columns.get("step").length - 1)));
}

async function start() {
  if (data.series) columns = await unpack(data.series);
  startState();
  document.addEventListener("keydown", onKey);
  document.addEventListener("click", onLink);
  for (const box of document.querySelectorAll("input[data-table]")) {
    const table = byId(`${box.dataset.table}-table`);
    box.addEventListener("change", () => table.classList.toggle("only", box.checked));
  }
  byId("next")?.addEventListener("click", () => jump(state.at + 1));
  byId("previous")?.addEventListener("click", () => jump(state.at - 1));
  if (columns) {
    const steps = columns.get("step");
    Object.assign(byId("step"), { min: steps[0], max: steps[steps.length - 1] });
    byId("step").addEventListener("input", (event) => {
      if (event.target.value !== "") goToStep(Number(event.target.value));
    });
    byId("in").addEventListener("click", () => zoom(0.5));
    byId("out").addEventListener("click", () => zoom(2));
    byId("all").addEventListener("click", () => view(0, Infinity));
    charts = [...document.querySelectorAll(".panel")].map(buildChart);
    view(0, Infinity);
    new ResizeObserver(() => view(state.from, state.to)).observe(byId("charts"));
    if (data.series.num < data.series.num_steps) {
      say(`${data.series.num} of ${data.series.num_steps} steps are on this page: every extreme, every divergence.`);
    }
  }
  show({ replace: location.search !== "" });
  document.documentElement.dataset.ready = "true";
}

start().catch((error) => {
  say(`The curves cannot be drawn: ${error.message}. The traces and the JSON verdict hold every value.`);
  document.documentElement.dataset.ready = "failed";
  throw error;
});
