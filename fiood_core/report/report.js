const byId = (id) => document.getElementById(id);

// -- elements: text only ever enters as text ---------------------------------------------------------------------

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

// -- numbers -----------------------------------------------------------------------------------------------------

function unpack(text) {
  const bytes = atob(text);
  const values = [];
  let value = 0;
  let scale = 1;
  for (let i = 0; i < bytes.length; i += 1) {
    const byte = bytes.charCodeAt(i);
    value += (byte & 127) * scale;
    if (byte > 127) {
      scale *= 128;
    } else {
      values.push(value);
      value = 0;
      scale = 1;
    }
  }
  return values;
}
function unpackRising(text) {
  let sum = 0;
  return unpack(text).map((step) => (sum += step));
}
/** Fractions in units of 1e-8, shifted by one so that 0 is "none". */
const unpackFractions = (text) => unpack(text).map((value) => (value === 0 ? null : (value - 1) / 1e8));

const percent = (fraction) => (fraction === null ? "–" : (fraction * 100).toFixed(2));
const count = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f");
function short(value) {
  const size = Math.abs(value);
  if (value !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2).replace("-", "−");
  return String(Number(value.toPrecision(4))).replace("-", "−");
}
function ticks(low, high, wanted) {
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((factor) => factor * power >= rough) ?? 10);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) found.push(i * step);
  return found;
}

// -- sorting -----------------------------------------------------------------------------------------------------

const collator = new Intl.Collator("en", { numeric: true });
function comparator(kind, descending) {
  const direction = descending ? -1 : 1;
  return (a, b) => {
    if (a === b) return 0;
    if (kind === "text") return direction * collator.compare(a, b);
    if (a === null) return 1;
    if (b === null) return -1;
    return direction * (a - b);
  };
}
function say(text) {
  byId("said").textContent = text;
}
/** Makes a header cell a sort button; `sort(descending)` is called on each press. */
function sortButton(th, sort) {
  const button = el("button", { type: "button" });
  button.append(...th.childNodes);
  th.replaceChildren(button);
  button.addEventListener("click", () => {
    const now = th.getAttribute("aria-sort");
    const descending = now === null ? th.dataset.first === "descending" : now === "ascending";
    sort(descending);
    for (const other of th.closest("thead").querySelectorAll("[aria-sort]")) other.removeAttribute("aria-sort");
    th.setAttribute("aria-sort", descending ? "descending" : "ascending");
    say(`Sorted by ${button.textContent.trim()}, ${descending ? "descending" : "ascending"}`);
  });
}
function sortable(table) {
  const body = table.tBodies[0];
  for (const th of table.tHead.querySelectorAll("th[data-column]")) {
    const column = Number(th.dataset.column);
    const kind = th.dataset.kind;
    const valueOf = (row) => {
      const cell = row.cells[column];
      const text = cell.dataset.value ?? cell.textContent.trim();
      return kind === "text" ? text : text === "" ? null : Number(text);
    };
    sortButton(th, (descending) => {
      const compare = comparator(kind, descending);
      const rows = [...body.rows].map((row) => [valueOf(row), row]);
      body.append(...rows.sort((a, b) => compare(a[0], b[0])).map((pair) => pair[1]));
    });
  }
}

// -- choices -----------------------------------------------------------------------------------------------------

function offer(select, options, label) {
  const before = select.value;
  select.replaceChildren(...options.map((option) => el("option", { value: option }, label(option))));
  if (options.map(String).includes(before)) select.value = before;
  select.closest("label").hidden = options.length < 2;
}
const unique = (values) => [...new Set(values)];
const checked = (name) => document.querySelector(`input[name="${name}"]:checked`).value;

// -- everything that is drawn from the data ----------------------------------------------------------------------

function interactive(data) {
  const names = data.names;

  const rows = Object.fromEntries(Object.entries(data.rows).map(([name, text]) => [name, unpack(text)]));
  for (const name of data.fractions) rows[name] = unpackFractions(data.rows[name]);
  const plots = Object.fromEntries(
    Object.entries(data.plots).map(([name, value]) => [name, Array.isArray(value) ? value : unpack(value)]),
  );
  const keyOf = (table, i) => [table.benchmark[i], table.backbone[i], table.method[i], table.replicate[i], table.ood[i]].join();
  const plotOf = new Map(plots.ood.map((_, i) => [keyOf(plots, i), i]));
  const firstPlot = new Map();
  plots.ood.forEach((ood, p) => {
    const key = [plots.benchmark[p], plots.backbone[p], plots.method[p], ood].join();
    if (!firstPlot.has(key)) firstPlot.set(key, p);
  });
  const wholeRow = new Map();
  rows.ood.forEach((_, i) => {
    if (names.subset[rows.subset[i]] !== "all") return;
    const key = keyOf(rows, i);
    if (!wholeRow.has(key) || names.aggregation[rows.aggregation[i]] === "pooled") wholeRow.set(key, i);
  });

  function measured(value, error) {
    return [percent(value), el("span", { class: "se" }, error === null ? "" : `±${percent(error)}`)];
  }

  // -- comparison --------------------------------------------------------------------------------------------------

  function comparison() {
    const place = byId("comparison-table");
    if (place === null) return;
    const [benchmark, backbone, errors] = ["comparison-benchmark", "comparison-backbone", "comparison-errors"].map(byId);
    offer(benchmark, [...data.tables.keys()], (i) => names.benchmark[data.tables[i].benchmark]);

    function draw() {
      const table = data.tables[benchmark.value];
      offer(backbone, table.backbones.map((_, i) => i), (i) => names.backbone[table.backbones[i].backbone]);
      const chosen = table.backbones[backbone.value];
      const metric = checked("comparison-metric");
      const offset = metric === "auroc" ? 0 : 2;
      const methods = chosen.methods.map(([method, text]) => ({ method, values: unpackFractions(text) }));
      const best = table.heads.map((_, column) => {
        const values = methods.map(({ values }) => values[4 * column + offset]).filter((value) => value !== null);
        return metric === "auroc" ? Math.max(...values) : Math.min(...values);
      });

      const groups = el("tr", {}, el("th", { scope: "col", rowspan: 2, class: "first", "data-column": 0, "data-kind": "text" }, "Detector"));
      for (const { group, span } of table.spans) {
        groups.append(el("th", { scope: "colgroup", colspan: span, class: "edge" }, group));
      }
      const heads = el("tr");
      table.heads.forEach((head, i) => {
        heads.append(el("th", {
          scope: "col", class: head.first ? "number edge" : "number", "data-column": i + 1, "data-kind": "number",
          "data-first": metric === "auroc" ? "descending" : "ascending",
        }, head.label));
      });
      const body = el("tbody");
      for (const { method, values } of methods) {
        const line = el("tr", {}, el("th", { scope: "row" }, names.method[method]));
        table.heads.forEach((head, i) => {
          const value = values[4 * i + offset];
          const classes = ["number", head.first && "edge", value !== null && value === best[i] && "best"];
          const cell = el("td", { class: classes.filter(Boolean).join(" "), "data-value": value ?? "" });
          const shown = measured(value, values[4 * i + offset + 1]);
          cell.append(...(errors.checked ? shown : shown.slice(0, 1)));
          const plot = firstPlot.get([table.benchmark, chosen.backbone, method, head.ood].join());
          if (plot !== undefined) {
            cell.dataset.plot = plot;
            cell.title = "Show its histogram and ROC curve";
          }
          line.append(cell);
        });
        body.append(line);
      }
      const what = metric === "auroc" ? "AUROC, higher is better" : "FPR@95, lower is better";
      const drawn = el("table", {},
        el("caption", {}, el("span", {}, `${names.backbone[chosen.backbone]}: ${what}. Percent${errors.checked ? ", ± one standard error (over replicates: their standard deviation)" : ""}; the best of a column in bold.`)),
        el("thead", { class: "two" }, groups, heads), body);
      sortable(drawn);
      place.replaceChildren(drawn);
    }
    for (const input of document.querySelectorAll("#s-comparison select, #s-comparison input")) input.addEventListener("change", draw);
    place.addEventListener("click", (event) => {
      const cell = event.target.closest("td[data-plot]");
      if (cell !== null) showPlot(Number(cell.dataset.plot));
    });
    draw();
  }

  // -- all results -------------------------------------------------------------------------------------------------

  function results() {
    const table = byId("results-table");
    if (table === null) return;
    const columns = [...table.tHead.querySelectorAll("th")].map((th) => ({ th, name: th.dataset.name, kind: th.dataset.kind }));
    const filters = [...document.querySelectorAll("#s-all-results select[data-name]")];
    for (const select of filters) {
      const present = unique(rows[select.dataset.name]).sort((a, b) => a - b);
      offer(select, [-1, ...present], (i) => (i < 0 ? "all" : names[select.dataset.name][i]));
      select.closest("label").hidden = present.length < 2;
      select.addEventListener("change", () => refresh());
    }
    const search = byId("results-search");
    const size = byId("results-size");
    const pager = byId("results-pager");
    let order = rows.ood.map((_, i) => i);
    let shown = order;
    let page = 0;

    const textOf = (name, i) => names[name][rows[name][i]];
    const named = columns.filter(({ name }) => name in names).map(({ name }) => name);
    function refresh() {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      shown = order.filter((i) =>
        filters.every((select) => select.value === "-1" || rows[select.dataset.name][i] === Number(select.value)) &&
        (words.length === 0 || words.every((word) => named.some((name) => textOf(name, i).toLowerCase().includes(word)))));
      page = 0;
      draw();
    }
    function cell({ name, kind }, i) {
      if (name === "plot") {
        const plot = plotOf.get(keyOf(rows, i));
        if (plot === undefined) return el("td");
        const button = el("button", { type: "button", "aria-label": `Show scores of ${textOf("method", i)} on ${textOf("ood", i)}` }, "plot");
        button.addEventListener("click", () => showPlot(plot));
        return el("td", {}, button);
      }
      if (kind === "text") return el("td", {}, textOf(name, i));
      const errors = rows[`${name}_stderr`];
      if (errors !== undefined) return el("td", { class: "number" }, ...measured(rows[name][i], errors[i]));
      if (data.fractions.includes(name)) return el("td", { class: "number" }, percent(rows[name][i]));
      return el("td", { class: "number" }, count(rows[name][i]));
    }
    function draw() {
      const length = Number(size.value) || Math.max(shown.length, 1);
      const pages = Math.max(Math.ceil(shown.length / length), 1);
      const part = shown.slice(page * length, (page + 1) * length);
      table.tBodies[0].replaceChildren(...part.map((i) => el("tr", {}, ...columns.map((column) => cell(column, i)))));
      const [back, forth, where] = ["results-back", "results-forth", "results-where"].map(byId);
      where.textContent = shown.length === 0 ? "no rows" : `rows ${count(page * length + 1)} to ${count(page * length + part.length)} of ${count(shown.length)}`;
      back.disabled = page === 0;
      forth.disabled = page + 1 >= pages;
      pager.hidden = false;
    }
    for (const { th, name, kind } of columns) {
      if (name === "plot") continue;
      sortButton(th, (descending) => {
        const compare = comparator(kind, descending);
        const value = kind === "text" ? (i) => textOf(name, i) : (i) => rows[name][i];
        order = order.map((i) => [value(i), i]).sort((a, b) => compare(a[0], b[0])).map((pair) => pair[1]);
        refresh();
      });
    }
    search.addEventListener("input", refresh);
    size.addEventListener("change", refresh);
    byId("results-back").addEventListener("click", () => { page -= 1; draw(); });
    byId("results-forth").addEventListener("click", () => { page += 1; draw(); });
    draw();
  }

  // -- histogram and ROC curve ---------------------------------------------------------------------------------------

  const fields = ["benchmark", "backbone", "method", "replicate", "ood"];
  const selects = fields.map((name) => byId(`plot-${name}`));
  let current = 0;

  /** Offers, field by field, what exists with the choices before it; stays as near to plot `wanted` as it can. */
  function choose(wanted) {
    let candidates = [...plots.ood.keys()];
    fields.forEach((name, i) => {
      const options = unique(candidates.map((p) => plots[name][p])).sort((a, b) => a - b);
      offer(selects[i], options, (option) => (name === "replicate" ? String(option) : names[name][option]));
      const value = options.includes(wanted[i]) ? wanted[i] : options[0];
      selects[i].value = value;
      candidates = candidates.filter((p) => plots[name][p] === value);
    });
    current = candidates[0];
    drawPlots();
  }
  function showPlot(plot) {
    choose(fields.map((name) => plots[name][plot]));
    byId("s-scores").scrollIntoView();
    byId("s-scores").querySelector("h2").focus({ preventScroll: true });
  }
  function points(plot) {
    const inside = data.insides[plots.inside[plot]];
    const hits = unpackRising(inside.curve).map((n) => n / inside.size);
    const alarms = unpackRising(plots.curve[plot]).map((n) => n / plots.n_ood[plot]);
    return { hits: [0, ...hits, 1], alarms: [0, ...alarms, 1], at95: data.at95 + 1 };
  }
  function axes(width, height, box, x, y, labels) {
    const group = svg("g", {});
    for (const [at, text] of y) {
      group.append(svg("line", { class: "grid", x1: box.left, x2: width - box.right, y1: at, y2: at }));
      group.append(svg("text", { x: box.left - 8, y: at + 4, "text-anchor": "end" }, text));
    }
    const floor = height - box.bottom;
    for (const [at, text] of x) {
      group.append(svg("line", { class: "axis", x1: at, x2: at, y1: floor, y2: floor + 4 }));
      group.append(svg("text", { x: at, y: floor + 18, "text-anchor": "middle" }, text));
    }
    group.append(svg("line", { class: "axis", x1: box.left, x2: width - box.right, y1: floor, y2: floor }));
    group.append(svg("text", { x: (box.left + width - box.right) / 2, y: height - 6, "text-anchor": "middle" }, labels.x));
    return group;
  }

  /** Width of a drawing's place, so that its text has the page's size. */
  const roomIn = (id) => Math.max(byId(id).clientWidth, 280);

  /** Sums of `width` neighbours: wider bins for small sets. */
  function merge(counts, width) {
    const sums = Array(counts.length / width).fill(0);
    counts.forEach((n, i) => (sums[Math.floor(i / width)] += n));
    return sums;
  }
  function histogram(plot) {
    const [width, height] = [roomIn("histogram"), 340];
    const box = { left: 48, right: 14, top: 46, bottom: 46 };
    const inside = data.insides[plots.inside[plot]];
    const merged = [4, 2, 1][[150, 800, Infinity].findIndex((size) => Math.min(inside.size, plots.n_ood[plot]) < size)];
    const shares = [
      merge(unpack(plots.in_counts[plot]), merged).map((n) => n / inside.size),
      merge(unpack(plots.out_counts[plot]), merged).map((n) => n / plots.n_ood[plot]),
    ];
    const top = Math.max(...shares[0], ...shares[1]) * 1.04;
    const [low, high] = [plots.low[plot], plots.high[plot]];
    const bins = shares[0].length;
    const floor = height - box.bottom;
    const x = (score) => box.left + ((score - low) / (high - low)) * (width - box.left - box.right);
    const y = (share) => floor - (share / top) * (floor - box.top);
    const edge = (i) => box.left + (i / bins) * (width - box.left - box.right);

    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-labelledby": "histogram-caption" });
    picture.append(axes(width, height, box,
      ticks(low, high, width / 70).map((tick) => [x(tick), short(tick)]),
      ticks(0, top, 4).map((tick) => [y(tick), `${short(tick * 100)} %`]),
      { x: "score (larger = more in-distribution)" }));
    shares.forEach((heights, which) => {
      const steps = heights.map((share, i) => `L${edge(i).toFixed(1)} ${y(share).toFixed(1)}H${edge(i + 1).toFixed(1)}`).join("");
      const path = `M${box.left} ${floor}${steps}V${floor}`;
      picture.append(svg("path", { class: which === 0 ? "in area" : "out area", d: `${path}Z` }));
      picture.append(svg("path", { class: which === 0 ? "in-line" : "out-line", d: path }));
    });
    const at = x(inside.threshold);
    const right = at > width * 0.55;
    picture.append(svg("line", { class: "rule", x1: at, x2: at, y1: box.top - 8, y2: floor }));
    picture.append(svg("text", { class: "strong halo", x: at + (right ? -7 : 7), y: box.top - 2, "text-anchor": right ? "end" : "start" },
      `5th percentile of ID: ${short(inside.threshold)}`));
    [["in", `ID (${count(inside.size)})`], ["out", `${names.ood[plots.ood[plot]]} (${count(plots.n_ood[plot])})`]].forEach(([kind, text], i) => {
      const left = box.left + i * 110;
      picture.append(svg("rect", { class: kind, x: left, y: 8, width: 12, height: 12, rx: 2 }));
      picture.append(svg("text", { class: "strong", x: left + 18, y: 18 }, text));
    });
    return picture;
  }

  function path(plot, x, y) {
    const { hits, alarms } = points(plot);
    return hits.map((hit, i) => `${i === 0 ? "M" : "L"}${x(alarms[i]).toFixed(1)} ${y(hit).toFixed(1)}`).join("");
  }
  function roc(plot, others, labelOf) {
    const [width, height] = [roomIn("roc"), 430];
    const box = { left: 66, right: 22, top: 12, bottom: 46 };
    const floor = height - box.bottom;
    const x = (rate) => box.left + rate * (width - box.left - box.right);
    const y = (rate) => floor - rate * (floor - box.top);
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-labelledby": "roc-caption" });
    const fifths = [0, 0.2, 0.4, 0.6, 0.8, 1];
    picture.append(axes(width, height, box, fifths.map((t) => [x(t), `${t * 100} %`]), fifths.map((t) => [y(t), `${Math.round(t * 100)} %`]),
      { x: "false positive rate (OOD taken for ID)" }));
    picture.append(svg("text", { transform: `translate(13 ${(floor + box.top) / 2}) rotate(-90)`, "text-anchor": "middle" }, "true positive rate (ID)"));
    picture.append(svg("line", { class: "chance", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }));
    for (const other of others) {
      picture.append(svg("path", { class: "curve", "data-plot": other, d: path(other, x, y) }, svg("title", {}, labelOf(other))));
    }
    picture.append(svg("path", { class: "curve chosen", d: path(plot, x, y) }));
    const { hits, alarms, at95 } = points(plot);
    const [px, py] = [x(alarms[at95]), y(hits[at95])];
    picture.append(svg("circle", { class: "dot", cx: px, cy: py, r: 4.5 }));
    picture.append(svg("text", { class: "strong halo", x: x(1) - 4, y: floor - 12, "text-anchor": "end" },
      `○ FPR at 95 % TPR: ${percent(alarms[at95])} %`));
    return picture;
  }

  function drawPlots() {
    const plot = current;
    const row = wholeRow.get(keyOf(plots, plot));
    const title = `${names.method[plots.method[plot]]} on ${names.ood[plots.ood[plot]]}`;
    const inside = data.insides[plots.inside[plot]];
    const { alarms, at95 } = points(plot);
    const metric = (name) => (row === undefined ? "–" : `${percent(rows[name][row])} ±${percent(rows[`${name}_stderr`][row])} %`);

    byId("histogram").replaceChildren(histogram(plot));
    byId("histogram-caption").replaceChildren(el("b", {}, `Scores: ${title}`),
      "Share of each set in each bin. The dashed line is the threshold of FPR@95: OOD scores to its right pass for ID." +
      (plots.beyond[plot] > 0 ? ` The end bins also hold ${count(plots.beyond[plot])} scores beyond the range.` : ""));

    const beside = checked("plot-beside");
    const varied = beside === "ood" ? "ood" : "method";
    const fixed = fields.filter((name) => name !== varied);
    const others = beside === "none" ? [] : [...plots.ood.keys()].filter((p) => p !== plot && fixed.every((name) => plots[name][p] === plots[name][plot]));
    const labelOf = (p) => names[varied][plots[varied][p]];
    const drawn = roc(plot, others, labelOf);
    byId("roc").replaceChildren(drawn);
    byId("roc-caption").replaceChildren(el("b", {}, `ROC: ${title}`),
      `${data.points} points at even steps of the ID scores, the circle being the 95 % point.`);

    const light = (p, on) => drawn.querySelector(`[data-plot="${p}"]`).classList.toggle("lit", on);
    const auroc = (p) => {
      const whole = wholeRow.get(keyOf(plots, p));
      return whole === undefined ? null : rows.auroc[whole];
    };
    const ranked = others.map((p) => [auroc(p), p]).sort((a, b) => comparator("number", true)(a[0], b[0]));
    byId("plot-others").replaceChildren(...ranked.map(([value, p]) => {
      const button = el("button", { type: "button" }, `${labelOf(p)} ${percent(value)}`);
      for (const [event, on] of [["mouseenter", true], ["mouseleave", false], ["focus", true], ["blur", false]]) {
        button.addEventListener(event, () => light(p, on));
      }
      button.addEventListener("click", () => choose(fields.map((name) => plots[name][p])));
      return el("li", {}, button);
    }));
    byId("plot-beside-label").textContent = others.length === 0 ? "" :
      `Beside it, by AUROC in percent: the other ${varied === "ood" ? "OOD sets of this detector" : "detectors on this set"}. Point at one to see its curve; press to choose it.`;

    byId("plot-readout").replaceChildren(...[
      ["AUROC", metric("auroc")],
      ["FPR@95", row === undefined ? `${percent(alarms[at95])} %` : metric("fpr95")],
      ["Threshold", short(inside.threshold)],
      ["ID pictures", count(inside.size)],
      ["OOD pictures", count(plots.n_ood[plot])],
    ].map(([term, value]) => el("div", {}, el("dt", {}, term), el("dd", {}, value))));
  }

  function scores() {
    if (byId("plot-ood") === null || plots.ood.length === 0) return;
    for (const select of selects) select.addEventListener("change", () => choose(selects.map((each) => Number(each.value))));
    for (const input of document.querySelectorAll('input[name="plot-beside"]')) input.addEventListener("change", drawPlots);
    window.addEventListener("resize", drawPlots);
    choose(fields.map((name) => plots[name][0]));
  }

  comparison();
  results();
  scores();
}

for (const table of document.querySelectorAll("table.sortable")) sortable(table);
const source = byId("fiood-data");
if (source !== null) interactive(JSON.parse(source.textContent));
