// Replaces the numbers of a page by those of its event stream. Every page works without it.
const fields = new Map();
for (const element of document.querySelectorAll("[data-field]")) {
  const list = fields.get(element.dataset.field) ?? [];
  fields.set(element.dataset.field, [...list, element]);
}
const keyed = new Map();
for (const element of document.querySelectorAll("[data-key]")) {
  const list = keyed.get(element.dataset.key) ?? [];
  keyed.set(element.dataset.key, [...list, element]);
}

// The server writes times in UTC. Only the browser knows its time zone: this adds the same moment in it, in brackets.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const abroad = !/^(Etc\/)?(UTC|GMT|UCT|Zulu|Universal|Greenwich)$/.test(zone);
const clocks = new Map(); // formats of times
function clock(date, options) {
  const key = JSON.stringify(options);
  if (!clocks.has(key)) clocks.set(key, new Intl.DateTimeFormat("en-GB", options));
  return clocks.get(key).format(date);
}
const utc = { timeZone: "UTC" }, day = { day: "numeric", month: "short" };
const minute = { hour: "2-digit", minute: "2-digit" }, second = { ...minute, second: "2-digit" };

// The time of a date in the zone of the browser, with its day if that is another one than in UTC.
function here(date, form) {
  const other = clock(date, day) !== clock(date, { ...utc, ...day });
  return clock(date, { ...(other ? day : {}), ...form, timeZoneName: "short" });
}

const times = /(?:(\d{4}-\d\d-\d\d |\d{1,2} [A-Z][a-z]{2} \d{4}, ))?\b\d\d:\d\d(:\d\d)? UTC|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|“[^”]*”/g;
function beside(text) {
  if (!abroad) return text;
  return text.replace(times, (all, date, seconds) => {
    if (all.startsWith("“")) return all; // words of a person
    const now = Date.now(), whole = date || all.endsWith("Z");
    let at = +new Date(whole ? all : `${new Date(now).toISOString().slice(0, 10)} ${all}`);
    if (!whole) at -= Math.round((at - now) / 864e5) * 864e5; // the server leaves out the date within 12 hours
    return isNaN(at) ? all : `${all} (${here(at, seconds || all.endsWith("Z") ? second : minute)})`;
  });
}

function write(element, value) {
  if (element.tagName === "PROGRESS") element.value = Number(value);
  else if (element.textContent !== beside(value)) element.textContent = beside(value);
}

// A time that is typed, in UTC, is said in both zones below its field.
function echo(input) {
  const output = document.createElement("output");
  output.className = "hintline";
  output.htmlFor = input.id;
  output.id = `${input.id}-zones`;
  input.after(output);
  input.setAttribute("aria-describedby", `${input.getAttribute("aria-describedby") ?? ""} ${output.id}`.trim());
  const say = () => {
    const at = new Date(`${input.value}Z`);
    output.textContent = isNaN(at) ? "" : beside(`${clock(at, { ...utc, ...day, year: "numeric", ...second })} UTC`);
  };
  input.addEventListener("input", say);
  say();
}

if (abroad) {
  for (const element of document.querySelectorAll("time[datetime]")) {
    element.append(` (${here(new Date(element.dateTime), /:.*:/.test(element.textContent) ? second : minute)})`);
  }
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT, (node) =>
    node.parentElement.closest("time[datetime], q, code, pre, script, textarea, option") ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT);
  while (texts.nextNode()) {
    const node = texts.currentNode, both = beside(node.data);
    if (both !== node.data) node.data = both;
  }
  document.querySelectorAll("input[type=datetime-local]").forEach(echo);
  for (const head of document.querySelectorAll(".charts thead th:first-child")) head.textContent += ` (${zone})`;
}

// The page has parts that the stream does not send, such as forms and rows. It is loaded again once they differ,
// unless the operator is filling in a form, or the browser waits for the answer to one: a reload cancels the request.
let stale = false, left = -Infinity;
addEventListener("beforeunload", () => { left = performance.now(); }); // also when the answer is a download
function refresh() {
  const active = document.activeElement;
  const busy = document.querySelector("details[open] form") || (active && active.matches("input, textarea, select"));
  const leaving = performance.now() - left < 30000;
  if (stale && !busy && !leaving && !document.hidden) location.reload();
}

function show(values) {
  for (const [name, value] of Object.entries(values)) {
    if (name === "page" && fields.get(name)?.[0].textContent !== value) {
      stale = true;
      continue;
    }
    for (const element of fields.get(name) ?? []) write(element, value);
    for (const element of keyed.get(name) ?? []) element.dataset.state = value;
  }
  refresh();
}

let stream, last = 0;
function open() {
  stream = new EventSource(document.body.dataset.stream);
  stream.onmessage = (event) => {
    last = Date.now();
    document.body.classList.remove("lost");
    show(JSON.parse(event.data));
  };
}
function watch() {
  if (Date.now() - last < 5000) return;
  document.body.classList.add("lost");
  show({ trouble: "The connection to global is lost: these numbers are old. Trying again." });
  if (stream.readyState === EventSource.CLOSED) open();
}

if (document.body.dataset.stream) {
  last = Date.now();
  open();
  setInterval(watch, 3000);
  // A hidden page needs no numbers, and a browser allows six streams per host.
  document.addEventListener("visibilitychange", () => {
    stream.close();
    if (!document.hidden) {
      last = Date.now();
      open();
    }
  });
}

// Charts. The page names the address of their values; each has a table too.
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colours = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6"];
const drawn = new Map(); // id: { plot, data }
let marks = [];

function line(series, index) {
  const name = series.kind === "limit" ? "--limit" : colours[index % colours.length];
  return {
    label: series.label,
    stroke: () => style(name),
    width: series.kind === "limit" ? 1.5 : 2,
    dash: series.kind === "limit" ? [6, 4] : index >= colours.length ? [2, 3] : undefined,
    fill: series.kind === "area" ? () => style("--c1-fill") : undefined,
    points: { show: false },
    value: (plot, value) => (value == null ? "–" : value.toLocaleString("en", { maximumFractionDigits: 1 })),
  };
}

// Actions and phases of events are lines through all charts.
function drawMarks(plot) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = style("--mark");
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const mark of marks) {
    const x = plot.valToPos(mark.time, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

function axis(more) {
  return {
    stroke: () => style("--soft"), font: "12px system-ui, sans-serif",
    grid: { stroke: () => style("--line"), width: 1 }, ticks: { stroke: () => style("--line"), width: 1 }, ...more,
  };
}

// The times of an axis are in UTC, and below that in the zone of the browser.
function ticks(plot, splits, index, space, step) {
  return splits.map((time) => {
    const date = time * 1000, form = step >= 86400 || time % 86400 === 0 ? day : step < 60 ? second : minute;
    const here = clock(date, form === day && step < 86400 ? minute : form);
    return clock(date, { ...utc, ...form }) + (abroad ? `\n${here}` : "");
  });
}
function legendTime(plot, time) {
  if (time == null) return "";
  const form = { ...day, ...second };
  return clock(time * 1000, { ...utc, ...form }) + (abroad ? ` (${here(time * 1000, second)})` : "");
}

const axisOfTime = abroad ?
  { size: 50, label: `UTC, below it ${zone}`, labelSize: 20, labelFont: "12px system-ui, sans-serif" } : { size: 32 };

// Without a cursor the legend has the newest values.
function legend(plot) {
  if (plot.cursor.idx == null && plot.data[0].length > 0) plot.setLegend({ idx: plot.data[0].length - 1 }, false);
}

const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

function draw(element, chart, times) {
  const data = [times, ...chart.series.map((series) => series.values)];
  const plot = new uPlot({
    width: element.clientWidth, height: abroad ? 216 : 180,
    cursor: { sync: { key: "room" }, y: false, drag: { x: false, y: false } },
    legend: { live: true },
    scales: { y: { range: (plot, min, max) => [0, max > 0 ? max * 1.08 : 1] } },
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    axes: [axis({ values: ticks, ...axisOfTime }), axis({ size: 48, values: (plot, values) => values.map((value) => short.format(value)) })],
    series: [{ label: abroad ? `UTC (${zone})` : "UTC", value: legendTime }, ...chart.series.map(line)],
    hooks: { draw: [drawMarks], setCursor: [legend], setData: [legend], ready: [legend] },
  }, data, element);
  drawn.set(chart.id, { plot, data });
}

// Rows after the last one are added, and as many of the oldest are dropped.
function extend(news, span) {
  for (const chart of news.charts) {
    const known = drawn.get(chart.id);
    if (!known) continue;
    const lists = [news.times, ...chart.series.map((series) => series.values)];
    if (lists.length !== known.data.length) continue;
    known.data = known.data.map((list, i) => list.concat(lists[i]));
    const first = known.data[0].findIndex((time) => time > known.data[0].at(-1) - span);
    known.data = known.data.map((list) => list.slice(Math.max(0, first)));
    known.plot.setData(known.data);
  }
}

async function values(address) {
  const answer = await fetch(address, { headers: { Accept: "application/json" } });
  if (!answer.ok || !answer.headers.get("Content-Type").startsWith("application/json")) throw new Error(answer.status);
  return answer.json();
}

async function charts(section) {
  const source = section.dataset.charts, live = "live" in section.dataset;
  if (live && !section.querySelector("[data-chart]")) { // a new room: the page comes with its charts once there is history
    setInterval(async () => {
      if (document.hidden) return;
      const news = await values(source).catch(() => null);
      if (news && news.times.length > 0) stale = true;
      refresh();
    }, 2000);
    return;
  }
  const all = await values(source);
  marks = all.marks;
  for (const chart of all.charts) {
    const element = section.querySelector(`[data-chart="${CSS.escape(chart.id)}"]`);
    if (element) draw(element, chart, all.times);
  }
  section.classList.add("drawn");
  new ResizeObserver(() => {
    for (const { plot } of drawn.values()) {
      const width = plot.root.parentElement.clientWidth;
      if (width && width !== plot.width) plot.setSize({ width, height: plot.height });
    }
  }).observe(section);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const { plot } of drawn.values()) plot.redraw(false, true);
  });
  if (!live) return;
  let newest = all.times.at(-1);
  const span = Math.max(3600, newest - all.times[0]);
  setInterval(async () => {
    if (document.hidden) return;
    try {
      const news = await values(`${source}&after=${newest}`);
      if (news.times.length === 0) return;
      newest = news.times.at(-1);
      marks = marks.concat(news.marks);
      extend(news, span);
    } catch {
      // The stream tells that the connection is lost. The next try asks for all rows since.
    }
  }, all.step * 1000);
}

const section = document.querySelector("[data-charts]");
if (section) {
  charts(section).catch(() => {
    section.querySelectorAll("details").forEach((table) => (table.open = true)); // the tables remain
  });
}
