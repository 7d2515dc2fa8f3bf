"use strict";
/* The timeline of a report. What is drawn depends on the pixels there are, never on how much was
   recorded: messages are summed up per bar, shapes too small to be told apart become one. */
(() => {
  const BAR = 3; // px, of one bar of messages
  const CELLS = 200; // per row: what is narrower than one of them is merged with its neighbours
  const FULL = 100; // messages per second that fill a lane's height
  const ROW = 17, BARS = 26, STRIP = 13, PAD = 4;
  const SHORTEST = 0.02; // seconds: no zooming below this
  const STEPS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800,
    3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000];
  const BANDS = ["backoff", "idle", "hold", "scope", "teardown"];
  const FULL_HEIGHT = new Set([...BANDS, ...BANDS.map((band) => band + "s")]);

  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("data").textContent);
  const length = Math.max(data.end - data.start, 1);
  const whole = [-length * 0.012, length * 1.012];
  let range = [...whole];
  let width = 1;
  let chosen = 0;
  let at = null; // the instant that the tooltip is about
  let step = -1; // which of the chosen session's events it is

  // -- values ------------------------------------------------------------------------------------

  /* How many messages had come by an instant: a sum that is looked up, however many there were. */
  function summed(flat) {
    const turns = [];
    for (let i = 0; i < flat.length; i += 3) {
      const [n, from] = [flat[i], flat[i + 1]];
      const to = Math.max(flat[i + 2], from + 0.001);
      turns.push([from, n / (to - from)], [to, -n / (to - from)]);
    }
    turns.sort((a, b) => a[0] - b[0]);
    const times = new Float64Array(turns.length), sums = new Float64Array(turns.length);
    let sum = 0, rate = 0, before = 0;
    turns.forEach(([time, change], i) => {
      sum += rate * (time - before);
      [times[i], sums[i], before] = [time, sum, time];
      rate += change;
    });
    return (time) => {
      let low = 0, high = times.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (times[middle] <= time) low = middle + 1; else high = middle;
      }
      if (low === 0) return 0;
      if (low === times.length) return sums[low - 1];
      const share = (time - times[low - 1]) / (times[low] - times[low - 1] || 1);
      return sums[low - 1] + share * (sums[low] - sums[low - 1]);
    };
  }

  const utc = (time) => new Date((data.start + time) * 1000).toISOString();
  const hasDays = utc(0).slice(0, 10) !== utc(length).slice(0, 10);
  function clock(time, digits = 0) {
    const text = utc(time);
    return digits ? text.slice(11, 20 + digits) : text.slice(11, 19);
  }
  const stamp = (time) => (hasDays ? `${utc(time).slice(5, 10)} ` : "") + clock(time, digits());
  function lasting(seconds) {
    if (seconds > 0 && seconds < 0.9995) return `${Number((seconds * 1000).toPrecision(3))} ms`;
    if (seconds < 60) return `${Number(seconds.toPrecision(3))} s`;
    const s = Math.round(seconds);
    if (s < 3600) return `${Math.floor(s / 60)} min` + (s % 60 ? ` ${s % 60} s` : "");
    if (s < 86400) return `${Math.floor(s / 3600)} h` + (Math.floor(s % 3600 / 60) ? ` ${Math.floor(s % 3600 / 60)} min` : "");
    return `${Math.floor(s / 86400)} d` + (Math.floor(s % 86400 / 3600) ? ` ${Math.floor(s % 86400 / 3600)} h` : "");
  }
  const digits = () => (range[1] - range[0] < 120 ? 3 : 0);
  const x = (time) => (time - range[0]) / (range[1] - range[0]) * width;
  const time = (px) => range[0] + px / width * (range[1] - range[0]);

  // -- elements ----------------------------------------------------------------------------------

  const SVG = "http://www.w3.org/2000/svg";
  function put(parent, name, attributes, text) {
    const element = document.createElementNS(SVG, name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  }

  const lanes = data.lanes.map((lane, i) => {
    const shapes = lane.s.map(([of, from, to, row, open, name, text]) => ({ of, from, to, row, open, name, text }));
    const points = lane.e.map(([of, when, text]) => ({ of, at: when, text }));
    const strip = shapes.some((shape) => shape.of === "attempt") ? STRIP : 0;
    const height = Math.max(PAD + strip + BARS + (lane.rows ? 3 + lane.rows * ROW : 0) + PAD, 44);
    const option = document.createElement("div");
    option.id = `lane-${i}`;
    option.className = `lane state-${lane.state}`;
    option.setAttribute("role", "option");
    option.setAttribute("aria-label", `${lane.name}: ${lane.label}`);
    const who = document.createElement("div");
    who.className = "who";
    const name = document.createElement("b");
    name.textContent = lane.name;
    const said = document.createElement("span");
    const state = document.createElement("i");
    const [first, ...rest] = lane.label.split(", ");
    state.textContent = first;
    said.append(state, ", " + rest[0]);
    who.title = `${lane.name}: ${lane.label}`;
    who.append(name, said);
    const plot = document.createElement("div");
    plot.style.height = `${height}px`;
    const svg = put(plot, "svg", { "aria-hidden": "true" });
    option.append(who, plot);
    $("lanes").append(option);
    const things = [...shapes.filter((shape) => shape.of !== "stream").map((shape) => ({ at: shape.from, text: shape.text })),
      ...points.map((point) => ({ at: point.at, text: point.text }))].sort((a, b) => a.at - b.at);
    const verdict = points.filter((point) => point.of === "verdict").at(-1);
    return { ...lane, shapes, points, strip, height, option, svg, things, verdict, messages: summed(lane.m),
      pings: summed(lane.p), isSeen: false, drawn: "" };
  });

  // -- drawing -----------------------------------------------------------------------------------

  function draw(lane) {
    const wanted = `${range} ${width}`;
    if (lane.drawn === wanted) return;
    lane.drawn = wanted;
    const svg = lane.svg;
    svg.replaceChildren();
    stretch(svg, lane.height);
    const top = PAD + lane.strip, base = top + BARS;
    const seen = lane.shapes.filter((shape) => shape.to >= range[0] && shape.from <= range[1]);
    let until = -Infinity;
    for (const shape of seen) {
      const right = edge(shape.to);
      if ((shape.of !== "stream" && shape.of !== "attempt") || right < until) continue;
      until = edge(shape.from) + width / CELLS;
      put(svg, "line", { class: "base" + (shape.open ? " open" : ""), x1: edge(shape.from), x2: right, y1: base + 0.5, y2: base + 0.5 });
    }
    for (const of of FULL_HEIGHT) boxes(svg, seen.filter((shape) => shape.of === of), PAD + lane.strip, lane.height - PAD - lane.strip - PAD, of.replace(/s$/, ""));
    boxes(svg, seen.filter((shape) => shape.of === "attempt"), PAD - 2, STRIP - 1, "attempt");
    bars(svg, lane.pings, base, "pings");
    bars(svg, lane.messages, base, "messages");
    for (let row = 0; row < lane.rows; row++) {
      const y = base + 3 + row * ROW;
      if (row === 0) boxes(svg, seen.filter((shape) => shape.of === "works"), y, ROW - 2, "works");
      boxes(svg, seen.filter((shape) => shape.of === "work" && shape.row === row), y, ROW - 2, "work");
    }
    marks(svg, lane, base);
  }

  /* On paper, the picture takes the width that there is. */
  function stretch(svg, height) {
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("preserveAspectRatio", "none");
  }

  const edge = (when) => Math.min(Math.max(x(when), -8), width + 8);

  function bars(svg, sum, base, kind) {
    let path = "", before = sum(time(0));
    const seconds = (range[1] - range[0]) / width * BAR;
    for (let left = 0; left < width; left += BAR) {
      const now = sum(time(left + BAR));
      if (now - before > 1e-9) {
        const share = Math.log1p((now - before) / seconds * 10) / Math.log1p(FULL * 10);
        const high = Math.max(2, Math.min(1, share) * BARS);
        path += `M${left} ${base}v${-high.toFixed(1)}h${BAR - 0.6}v${high.toFixed(1)}`;
      }
      before = now;
    }
    if (path) put(svg, "path", { class: kind, d: path });
  }

  /* Boxes of one row, which are sorted by their beginning. */
  function boxes(svg, shapes, y, height, kind) {
    const cell = width / CELLS;
    let merged = null; // the box that takes its small neighbours in
    const flush = () => {
      if (merged) put(svg, "rect", { class: merged.of + (merged.open ? " open" : ""), x: merged.left.toFixed(1), width: (merged.right - merged.left).toFixed(1), y, height, rx: kind === "work" ? 2 : 0 });
      merged = null;
    };
    for (const shape of shapes) {
      const left = edge(shape.from), right = Math.max(edge(shape.to), left + 1.5);
      if (right - left < cell) {
        if (merged && left < merged.until) {
          merged.right = Math.max(merged.right, right);
          continue;
        }
        flush();
        merged = { of: shape.of, open: shape.open, left, right, until: left + cell };
        continue;
      }
      flush();
      put(svg, "rect", { class: shape.of + (shape.open ? " open" : ""), x: left.toFixed(1), width: (right - left).toFixed(1), y, height, rx: kind === "work" ? 2 : 0 });
      label(svg, shape, left, right, kind === "attempt" || kind === "work" ? y + height / 2 + 3.7 : y + 11, kind);
    }
    flush();
  }

  function label(svg, shape, left, right, y, kind) {
    if (kind === "works") return;
    const from = Math.max(left, 0) + 4, room = Math.min(right, width) - from - 2;
    let text = { work: shape.name, attempt: `attempt ${shape.name}`, idle: `silent ${lasting(shape.to - shape.from)}`, hold: `held: ${shape.name}`,
      teardown: "teardown", backoff: "pause", scope: shape.name }[kind] ?? shape.name;
    const most = Math.floor(room / 6.7);
    if (text.length > most) text = most >= 4 ? text.slice(0, most - 1) + "…" : "";
    if (text) put(svg, "text", { class: `${kind}-name`, x: from.toFixed(1), y }, text);
  }

  function marks(svg, lane, base) {
    const last = {};
    for (const point of lane.points) {
      const px = x(point.at);
      if (px < -8 || px > width + 8 || px - (last[point.of] ?? -99) < 5) continue;
      last[point.of] = px;
      const bottom = point.of === "turn" ? base + 3 : lane.height - 2;
      put(svg, "line", { class: point.of, x1: px, x2: px, y1: point.of === "turn" ? base - 6 : 2, y2: bottom });
      if (point.of === "verdict") put(svg, "path", { class: "flag", d: px + 9 < width ? `M${px} 1h9l-3 4 3 4h-9z` : `M${px} 1h-9l3 4-3 4h9z` });
    }
  }

  function axis() {
    const svg = $("axis");
    svg.replaceChildren();
    stretch(svg, 24);
    const span = range[1] - range[0];
    const every = STEPS.find((size) => size / span * width >= (size < 1 ? 108 : 84)) ?? STEPS.at(-1);
    const offset = data.start % every;
    const places = every >= 1 ? 0 : every >= 0.1 ? 1 : 2;
    for (let when = Math.ceil((range[0] + offset) / every) * every - offset; when <= range[1]; when += every) {
      const px = x(when);
      put(svg, "line", { class: "grid", x1: px, x2: px, y1: 18, y2: 24 });
      const isDay = every >= 86400 || clock(when) === "00:00:00";
      put(svg, "text", { class: "tick", x: px, y: 14, "text-anchor": px < 26 ? "start" : px > width - 26 ? "end" : "middle" },
        isDay ? utc(when).slice(5, 10) : every >= 60 ? clock(when).slice(0, 5) : clock(when, places));
    }
  }

  function overview() {
    const svg = $("overview"), bins = Math.floor(width / BAR), size = (whole[1] - whole[0]) / bins;
    const sums = new Float64Array(bins);
    for (const lane of lanes) {
      let before = 0;
      for (let i = 0; i < bins; i++) {
        const now = lane.messages(whole[0] + (i + 1) * size);
        sums[i] += now - before;
        before = now;
      }
    }
    const most = Math.log1p(Math.max(...sums, 1));
    let path = "", flags = "";
    sums.forEach((n, i) => {
      if (n > 1e-9) path += `M${i * BAR} 25v${-Math.max(1.5, Math.log1p(n) / most * 18).toFixed(1)}h${BAR - 0.6}V25`;
    });
    const seen = new Set();
    for (const { verdict } of lanes) {
      if (!verdict) continue;
      const px = Math.round((verdict.at - whole[0]) / (whole[1] - whole[0]) * width);
      if (!seen.has(px)) flags += `M${px} 0v25`;
      seen.add(px);
    }
    svg.replaceChildren();
    put(svg, "path", { class: "messages", d: path });
    if (flags) put(svg, "path", { class: "verdict", d: flags });
    put(svg, "rect", { id: "window", y: 0, height: 26, x: 0, width: 0 });
  }

  function refresh() {
    axis();
    for (const lane of lanes) if (lane.isSeen) draw(lane);
    const share = width / (whole[1] - whole[0]), box = $("window");
    box.setAttribute("x", (range[0] - whole[0]) * share);
    box.setAttribute("width", Math.max(3, (range[1] - range[0]) * share));
    $("range").textContent = `${stamp(range[0])} – ${stamp(range[1])} UTC, ${lasting(range[1] - range[0])}`;
    point();
  }

  let isDue = false;
  function soon() {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      refresh();
    });
  }

  // -- what is shown -----------------------------------------------------------------------------

  function show(from, to) {
    const span = Math.min(Math.max(to - from, SHORTEST), whole[1] - whole[0]);
    const middle = (from + to) / 2;
    const start = Math.min(Math.max(middle - span / 2, whole[0]), whole[1] - span);
    range = [start, start + span];
    soon();
  }
  function zoom(factor, around = at ?? (range[0] + range[1]) / 2) {
    const share = (around - range[0]) / (range[1] - range[0]);
    const span = Math.min(Math.max((range[1] - range[0]) / factor, SHORTEST), whole[1] - whole[0]);
    show(around - share * span, around - share * span + span);
  }
  const pan = (share) => show(range[0] + share * (range[1] - range[0]), range[1] + share * (range[1] - range[0]));
  const showAll = () => show(...whole);

  function toVerdict() {
    const lane = lanes[chosen].verdict ? lanes[chosen] : lanes.find((each) => each.verdict);
    if (!lane) return;
    choose(lanes.indexOf(lane));
    const since = data.lanes[chosen].since ?? lane.verdict.at - 30;
    const span = Math.max((lane.verdict.at - since) * 1.7, 20);
    show(lane.verdict.at - span * 0.75, lane.verdict.at + span * 0.25);
    point(lane.verdict.at, lane, true);
  }

  function choose(i) {
    chosen = Math.min(Math.max(i, 0), lanes.length - 1);
    step = -1;
    lanes.forEach((lane, n) => lane.option.setAttribute("aria-selected", String(n === chosen)));
    $("lanes").setAttribute("aria-activedescendant", lanes[chosen].option.id);
  }

  function walk(by) {
    const lane = lanes[chosen];
    if (!lane.things.length) return;
    step = step < 0 && by < 0 ? lane.things.length - 1 : Math.min(Math.max(step + by, 0), lane.things.length - 1);
    const thing = lane.things[step], span = range[1] - range[0];
    if (thing.at < range[0] || thing.at > range[1]) show(thing.at - span / 2, thing.at + span / 2);
    point(thing.at, lane, true);
    $("said").textContent = `${stamp(thing.at)}, ${thing.text}`;
  }

  // -- the tooltip -------------------------------------------------------------------------------

  let about = null;
  function point(when = at, lane = about, byKey = false) {
    at = when;
    about = lane;
    const isShown = at !== null && lane && at >= range[0] && at <= range[1];
    $("cross").hidden = $("tip").hidden = !isShown;
    if (!isShown) return;
    const plot = lane.svg.getBoundingClientRect(), chart = $("lanes").parentElement.getBoundingClientRect();
    $("cross").style.left = `${plot.left - chart.left + x(at)}px`;
    const tip = $("tip"), close = 6 / width * (range[1] - range[0]);
    const lines = lane.points.filter((each) => Math.abs(each.at - at) <= close).map((each) => `${clock(each.at, digits())} ${each.text}`);
    for (const shape of lane.shapes) {
      if (shape.from - close / 3 <= at && at <= shape.to + close / 3 && shape.text) lines.push(shape.text);
    }
    const half = BAR / 2 / width * (range[1] - range[0]);
    for (const [sum, one, many] of [[lane.messages, "message", "messages"], [lane.pings, "ping", "pings"]]) {
      const n = Math.round(sum(at + half) - sum(at - half));
      if (n) lines.push(`${n.toLocaleString("en")} ${n === 1 ? one : many} within ${lasting(2 * half)}`);
    }
    const title = document.createElement("b");
    title.textContent = `${stamp(at)} UTC, ${lane.name}`;
    tip.replaceChildren(title);
    for (const line of lines.length > 7 ? [...lines.slice(0, 6), `… and ${lines.length - 6} more`] : lines) {
      const row = document.createElement("div");
      row.textContent = line;
      tip.append(row);
    }
    if (byKey) lane.option.scrollIntoView({ block: "nearest" });
    const box = tip.getBoundingClientRect(), place = lane.svg.getBoundingClientRect();
    const left = place.left + x(at) + 14, isLow = place.bottom + box.height + 12 > innerHeight;
    tip.style.left = `${Math.max(6, left + box.width > innerWidth - 6 ? left - box.width - 28 : left)}px`;
    tip.style.top = `${isLow ? Math.max(6, place.top - box.height - 6) : place.bottom + 6}px`;
  }

  // -- hands -------------------------------------------------------------------------------------

  const laneAt = (target) => lanes.find((lane) => lane.option.contains(target));
  const timeAt = (event) => time(event.clientX - lanes[0].svg.getBoundingClientRect().left);
  let drag = null;

  function dropBrush() {
    $("brush")?.remove();
    drag = null;
  }
  $("lanes").addEventListener("pointermove", (event) => {
    const lane = laneAt(event.target);
    if (drag && drag.isTouch) {
      pan((drag.at - timeAt(event)) / (range[1] - range[0]));
    } else if (drag) {
      const [from, to] = [drag.at, timeAt(event)].sort((a, b) => a - b);
      const box = $("brush") ?? put(drag.lane.svg, "rect", { id: "brush", y: 0, height: "100%" });
      box.setAttribute("x", x(from));
      box.setAttribute("width", x(to) - x(from));
    }
    if (lane && lane.svg.contains(event.target)) point(timeAt(event), lane);
    else if (!drag) point(null);
  });
  $("lanes").addEventListener("pointerleave", () => { if (!drag) point(null); });
  $("lanes").addEventListener("pointerdown", (event) => {
    const lane = laneAt(event.target);
    if (!lane || event.button !== 0) return;
    choose(lanes.indexOf(lane));
    if (!lane.svg.contains(event.target)) return;
    drag = { at: timeAt(event), px: event.clientX, lane, isTouch: event.pointerType === "touch" };
  });
  addEventListener("pointerup", (event) => {
    if (drag && !drag.isTouch && Math.abs(event.clientX - drag.px) > 5) {
      const ends = [drag.at, timeAt(event)].sort((a, b) => a - b);
      show(Math.max(ends[0], range[0]), Math.min(ends[1], range[1]));
    }
    dropBrush();
  });
  addEventListener("pointercancel", dropBrush);
  $("lanes").addEventListener("dblclick", (event) => zoom(1 / 3, timeAt(event)));
  $("lanes").addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(-event.deltaY / 240), timeAt(event));
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / width);
    else return;
    event.preventDefault();
  }, { passive: false });

  const KEYS = {
    "+": () => zoom(1.6), "=": () => zoom(1.6), "-": () => zoom(1 / 1.6), "_": () => zoom(1 / 1.6),
    ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2),
    ArrowUp: () => select(chosen - 1), ArrowDown: () => select(chosen + 1),
    Home: () => select(0), End: () => select(lanes.length - 1),
    n: () => walk(1), p: () => walk(-1), v: toVerdict, 0: showAll,
    Escape: () => {
      if (drag) dropBrush();
      else if (at !== null) point(null);
      else showAll();
    },
  };
  function select(i) {
    choose(i);
    point(null);
    lanes[chosen].option.scrollIntoView({ block: "nearest" });
  }
  $("lanes").addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(KEYS, event.key) || !lanes.length) return;
    KEYS[event.key]();
    event.preventDefault();
  });
  addEventListener("keydown", (event) => { if (event.key === "Escape" && document.activeElement !== $("lanes")) point(null); });

  $("in").onclick = () => zoom(1.6);
  $("out").onclick = () => zoom(1 / 1.6);
  $("earlier").onclick = () => pan(-0.4);
  $("later").onclick = () => pan(0.4);
  $("whole").onclick = showAll;
  $("verdict").onclick = toVerdict;
  $("verdict").hidden = !lanes.some((lane) => lane.verdict);

  function moveWindow(event) {
    const middle = whole[0] + (event.clientX - $("overview").getBoundingClientRect().left) / width * (whole[1] - whole[0]);
    const span = range[1] - range[0];
    show(middle - span / 2, middle + span / 2);
  }
  $("overview").addEventListener("pointerdown", (event) => {
    $("overview").setPointerCapture(event.pointerId);
    moveWindow(event);
  });
  $("overview").addEventListener("pointermove", (event) => { if (event.buttons & 1) moveWindow(event); });

  // -- beginnings --------------------------------------------------------------------------------

  if (!lanes.length) return;
  choose(0);
  const byOption = new Map(lanes.map((lane) => [lane.option, lane]));
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const lane = byOption.get(entry.target);
      lane.isSeen = entry.isIntersecting;
      if (lane.isSeen) draw(lane);
      else {
        lane.svg.replaceChildren();
        lane.drawn = "";
      }
    }
  }, { rootMargin: "200px 0px" });
  lanes.forEach((lane) => watcher.observe(lane.option));
  new ResizeObserver(() => {
    const now = Math.round(lanes[0].svg.getBoundingClientRect().width);
    if (now < 1 || now === width) return;
    width = now;
    overview();
    refresh();
  }).observe(lanes[0].svg.parentElement);
  addEventListener("beforeprint", () => lanes.forEach(draw));
})();
