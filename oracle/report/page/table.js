// The table at a step: every scalar of both legs as it was traced, with its rule. Reads `data`,
// `columns` and `state` of page.js.

const COUNTS = ["epoch", "num_tokens", "num_targets"];

function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

function shown(name, leg, index) {
  if (columns.get(`present.${leg}`)[index] === 0) return "absent";
  return repr(columns.get(`${name}.${leg}`)[index], COUNTS.includes(name));
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
  const over = relativeDifference(a, b, data.scales[field.name]) > limit;
  return { text: `at most ${short(limit)}, ${field.clause}`, over };
}

function tableRows(step) {
  const labels = [...data.legs, "absolute", "relative", "ulps", "rule"];
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
      cell.dataset.label = labels[k];
      if (text === "–") cell.classList.add("empty");
      row.append(cell);
    });
    rows.push(row);
  }
  return rows;
}
