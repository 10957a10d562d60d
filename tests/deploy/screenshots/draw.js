// Draws window.BOARD: {title, variables, from, to, panels}. Only for the images of the docs.
"use strict";

const COLOURS = {
  green: "#73bf69", yellow: "#fade2a", blue: "#5794f2", orange: "#ff9830", red: "#f2495c",
  purple: "#b877d9", "dark-purple": "#8f3bb8", "dark-green": "#37872d", text: "#ccccdc", transparent: "transparent",
};
const PALETTE = [
  "#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2", "#b877d9", "#705da0",
  "#37872d", "#fade2a", "#447ebc", "#c15c17", "#890f02", "#0a437c",
];
const ROW = 36, GAP = 8;

const make = (tag, text, name) => {
  const found = document.createElement(tag);
  if (text !== undefined) found.textContent = text;
  if (name) found.className = name;
  return found;
};

function digits(value, wanted) {
  if (wanted !== undefined && wanted !== null) return value.toFixed(wanted);
  const size = Math.abs(value);
  if (size === 0 || Number.isInteger(value)) return String(value);
  return String(+value.toPrecision(size < 0.01 ? 2 : 3));
}

function scaled(value, steps, wanted) {
  for (const [from, unit] of steps)
    if (Math.abs(value) >= from) return digits(value / from, wanted) + unit;
  return digits(value, wanted) + steps[steps.length - 1][1];
}

function format(value, unit, wanted) {
  if (value === null || value === undefined) return "";
  if (unit === "percentunit") return digits(value * 100, wanted) + "%";
  if (unit === "reqps") return digits(value, wanted) + " req/s";
  if (unit === "currencyUSD") return "$" + digits(value, wanted);
  if (unit === "bytes") return scaled(value, [[2 ** 30, " GiB"], [2 ** 20, " MiB"], [1024, " KiB"], [1, " B"]], wanted);
  if (unit === "s") {
    if (value === 0) return "0 s";
    return scaled(value, [[86400, " d"], [3600, " h"], [60, " min"], [1, " s"], [1e-3, " ms"]], wanted);
  }
  if (unit === "short") return scaled(value, [[1e9, " Bil"], [1e6, " Mil"], [1e4, " K"], [1, ""]].map(
    ([from, name]) => [from === 1e4 ? 1e3 : from, name]), wanted).replace(/^(\d+) K$/, "$1 K");
  return digits(value, wanted);
}

const clock = at => new Date(at * 1000).toISOString().slice(11, 16);

function options(panel, name) {
  const defaults = panel.fieldConfig.defaults;
  const own = { ...defaults.custom, unit: defaults.unit, decimals: defaults.decimals };
  for (const override of panel.fieldConfig.overrides || []) {
    if (override.matcher.options !== name) continue;
    for (const { id, value } of override.properties) own[id.replace(/^custom\./, "")] = value;
  }
  return own;
}

function step(panel, value) {
  let found = null;
  for (const one of panel.fieldConfig.defaults.thresholds.steps)
    if (one.value === null || one.value === undefined || value >= one.value) found = one.color;
  return COLOURS[found] || found;
}

function timeseries(panel, box, width, height) {
  const legend = make("div", undefined, "legend");
  if (!panel.series.length) return box.append(make("div", panel.fieldConfig.defaults.noValue || "No data", "empty"));
  const times = [...new Set(panel.series.flatMap(one => one.values.map(([at]) => at)))].sort((a, b) => a - b);
  const stacked = (panel.fieldConfig.defaults.custom.stacking || {}).mode === "normal";
  const sums = times.map(() => 0);
  const columns = [], series = [{}], bands = [], names = panel.series.map(one => one.name);
  let next = 0;
  const unit = panel.fieldConfig.defaults.unit, wanted = panel.fieldConfig.defaults.decimals;
  panel.series.forEach((one, place) => {
    const own = options(panel, one.name);
    const colour = own.color ? COLOURS[own.color.fixedColor] : PALETTE[next++ % PALETTE.length];
    const at = new Map(one.values);
    const values = times.map((time, i) => {
      const value = at.has(time) ? at.get(time) : null;
      if (!stacked) return value;
      return value === null ? sums[i] : (sums[i] += value);
    });
    columns.push(values);
    const opaque = (own.fillOpacity || 0) / 100;
    const fill = colour + Math.round(opaque * 255).toString(16).padStart(2, "0");
    series.push({
      label: one.name, stroke: own.lineWidth === 0 ? "transparent" : colour, width: own.lineWidth || 0,
      fill: opaque && !own.fillBelowTo && !stacked ? fill : undefined, points: { show: false },
    });
    if (own.fillBelowTo) {
      const lower = names.indexOf(own.fillBelowTo);
      if (lower >= 0) bands.push({ series: [place + 1, lower + 1], fill });
    }
    if (stacked) {
      if (place) bands.push({ series: [place + 1, place], fill });
      else series[1].fill = fill;
    }
    if (!(own.hideFrom && own.hideFrom.legend)) {
      const entry = make("span", one.name || "value");
      entry.style.setProperty("--c", colour);
      legend.append(entry);
    }
  });
  const limits = panel.fieldConfig.defaults.custom.thresholdsStyle ? panel.fieldConfig.defaults.thresholds.steps : [];
  // As in Grafana: the line of a step has its colour; one that ends trouble, that of the trouble.
  const rules = limits.map((one, i) => [one.value, one.color === "transparent" ? (limits[i - 1] || {}).color : one.color])
    .filter(([value, colour]) => value !== null && value !== undefined && colour && colour !== "transparent");
  const soft = panel.fieldConfig.defaults.custom;
  const high = soft.axisSoftMax;
  const overlay = plot => {
    const context = plot.ctx;
    context.save();
    context.beginPath();
    context.rect(plot.bbox.left, plot.bbox.top, plot.bbox.width, plot.bbox.height);
    context.clip();
    for (const [value, colour] of rules) {
      const y = plot.valToPos(value, "y", true);
      context.strokeStyle = COLOURS[colour] || colour;
      context.setLineDash([8 * devicePixelRatio, 6 * devicePixelRatio]);
      context.lineWidth = 1.5 * devicePixelRatio;
      context.beginPath();
      context.moveTo(plot.bbox.left, y);
      context.lineTo(plot.bbox.left + plot.bbox.width, y);
      context.stroke();
    }
    context.setLineDash([]);
    for (const [at, value] of panel.exemplars || []) {
      const x = plot.valToPos(at, "x", true), y = plot.valToPos(value, "y", true), r = 4 * devicePixelRatio;
      context.fillStyle = "#8ab8ff";
      context.beginPath();
      context.moveTo(x, y - r); context.lineTo(x + r, y); context.lineTo(x, y + r); context.lineTo(x - r, y);
      context.fill();
    }
    context.restore();
  };
  const axis = { stroke: "#9a9ba8", grid: { stroke: "#2c2f36", width: 1 }, ticks: { show: false }, font: "11px Inter, sans-serif" };
  const top = Math.max(0, ...(panel.exemplars || []).map(([, value]) => value));
  const host = make("div");
  box.append(host, legend);
  new uPlot({
    width, height: height - 26, series, bands, cursor: { show: false }, legend: { show: false },
    padding: [6, 8, 0, 0],
    scales: {
      x: { time: true, min: BOARD.from, max: BOARD.to },
      y: { range: (_, low, up) => {
        const least = Math.min(0, low ?? 0), most = Math.max(high ?? 0, top, up ?? 0);
        return [least, most === least ? least + 1 : high !== undefined && most === high ? most : most + (most - least) * 0.06];
      } },
    },
    axes: [{ ...axis, size: 24, space: 56, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 62, values: (_, ticks) => ticks.map(tick => format(tick, unit, tick ? wanted : undefined)) }],
    hooks: { draw: [overlay] },
  }, [times, ...columns], host);
}

function stat(panel, box, width, height) {
  const shown = panel.series.length ? panel.series : [{ name: "", values: [[0, null]] }];
  box.classList.add("stat");
  const mapped = ((panel.fieldConfig.defaults.mappings || [])[0] || {}).options || {};
  for (const one of shown) {
    const values = one.values.map(([, value]) => value).filter(value => value !== null);
    const value = values.length ? values[values.length - 1] : null;
    const known = mapped[String(value)];
    const defaults = panel.fieldConfig.defaults;
    const text = value === null ? panel.fieldConfig.defaults.noValue || "No data" : known ? known.text : format(value, defaults.unit, defaults.decimals);
    const entry = make("div", undefined, "number");
    if (panel.options.textMode === "value_and_name") entry.append(make("small", one.name));
    const digits_ = make("b", text);
    digits_.style.color = known ? COLOURS[known.color] : value === null ? "#9a9ba8" : step(panel, value);
    digits_.style.fontSize = `${Math.min(34, (width / shown.length / Math.max(4, text.length)) * 1.5, height * 0.5)}px`;
    entry.append(digits_);
    box.append(entry);
  }
}

function table(panel, box) {
  const { columns, rows } = panel.table;
  if (!rows.length) return box.append(make("div", panel.fieldConfig.defaults.noValue || "No data", "empty"));
  const found = make("table"), head = make("tr");
  columns.forEach(name => head.append(make("th", name)));
  found.append(head);
  for (const row of rows) {
    const line = make("tr");
    row.forEach((value, i) => {
      const own = options(panel, columns[i]);
      const number = typeof value === "number";
      const cell = make("td", number ? format(value, own.unit, own.decimals) : value ?? "", number ? "n" : "");
      if (own.links) cell.classList.add("link");
      line.append(cell);
    });
    found.append(line);
  }
  box.append(found);
}

const board = document.getElementById("board");
document.getElementById("title").textContent = BOARD.title;
const chosen = document.getElementById("variables");
for (const [name, value] of BOARD.variables) {
  const entry = make("span", undefined, "variable");
  entry.append(make("em", name), make("b", value));
  chosen.append(entry);
}
const unit = (board.clientWidth + GAP) / 24;
let lowest = 0;
for (const panel of BOARD.panels) {
  const { x, y, w, h } = panel.gridPos;
  const box = make("section", undefined, panel.type === "row" ? "row" : "panel");
  const width = w * unit - GAP, height = h * (ROW + GAP) - GAP;
  Object.assign(box.style, { left: `${x * unit}px`, top: `${y * (ROW + GAP)}px`, width: `${width}px`, height: `${height}px` });
  lowest = Math.max(lowest, (y + h) * (ROW + GAP));
  box.append(make("h2", panel.title));
  board.append(box);
  if (panel.type === "row") continue;
  const body = make("div", undefined, "body");
  box.append(body);
  ({ timeseries, stat, table })[panel.type](panel, body, width - 16, height - 40);
}
board.style.height = `${lowest}px`;
document.body.dataset.done = "yes";
