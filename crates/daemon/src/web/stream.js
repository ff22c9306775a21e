// The page Stream: what a stream contains now. The daemon computes spectra only while this page is open and seen.

import { call, Problem } from "./api.js";
import { count, element, keyed, nameOf, say } from "./dom.js";
import { lost, lostBefore } from "./now.js";
import { bars, curves, fit, ticks, written } from "./plot.js";
import { clock, decibels, frequency, readMessages, readRow, unitOf } from "./row.js";
import { ROWS, waterfall } from "./waterfall.js";

/** Values of the curve of total power. */
const POWERS = 600;

const WINDOWS = ["hann", "hamming", "blackman", "rectangular"];

const option = (value, text = value) => element("option", { value }, text);

function select(label, name, options, chosen, onchange) {
  const node = element("select", { name, onchange }, ...options.map((it) => option(...[it].flat())));
  node.value = chosen;
  return { node, field: element("label", {}, label, node) };
}

const section = (id, title, ...children) =>
  element("section", { "aria-labelledby": id }, element("h2", { id }, title), ...children);

/** Makes the options of a list those of `items`, pairs of value and text, and keeps the choice if it is among them. */
function offer(node, items) {
  const key = JSON.stringify(items);
  if (node.dataset.items === key) return;
  node.dataset.items = key;
  const before = node.value;
  node.replaceChildren(...items.map((it) => option(...it)));
  if (items.some(([value]) => value === before)) node.value = before;
}

/** Decibels of a row, averaged by `share`, and the peaks so far. */
function folded(view, row, share) {
  if (view.linear?.length !== row.channels) {
    view.linear = null;
    view.peak = null;
  }
  const levels = Float64Array.from(row.values, (value) => row.floor + row.step * value);
  const powers = levels.map((level) => 10 ** (level / 10));
  view.linear = view.linear ? view.linear.map((old, at) => old + share * (powers[at] - old)) : powers;
  view.levels = view.linear.map((power) => 10 * Math.log10(power));
  view.peak = view.peak ? view.peak.map((old, at) => Math.max(old, levels[at])) : levels;
}

/** The range of levels that shows noise and lines: from below the weakest tenth to above the strongest. */
function rangeOf(levels) {
  const sorted = Float64Array.from(levels).sort();
  const low = sorted[Math.floor(sorted.length * 0.1)] - 4;
  return [Math.floor(low / 5) * 5, Math.ceil((Math.max(sorted[sorted.length - 1], low + 10) + 3) / 5) * 5];
}

export function stream(tools) {
  const { act, role } = tools;
  const wanted = location.hash.split("/").slice(1).map(decodeURIComponent);
  const view = { row: null, powers: [], marker: null, range: [-80, 0], times: [], passed: 0 };
  let [socket, asked, timer, frame, status, refused] = [null, "", null, null, null, false];

  // A scan of the store in place of what is recorded now.
  const scan = wanted[0] === "scan" ? wanted[1] : null;
  const time = element("input", { type: "range", name: "time", min: 0, max: 0, step: "any", value: 0, oninput: () => step() });
  const at = element("output", {}, "0.000 s");
  const play = element("button", { type: "button", "aria-pressed": "false", onclick: () => {
    play.setAttribute("aria-pressed", play.getAttribute("aria-pressed") !== "true");
    step();
  } }, "Play");
  const reopen = () => {
    refused = false;
    open();
  };
  const which = select("Stream", "stream", [], "", () => {
    view.marker = null;
    reopen();
  });
  const thread = select("Thread", "thread", [["", "first"]], "", reopen);
  const channel = select("Channel", "channel", [["0", "0"]], "0", reopen);
  const size = select("Resolution", "size", [256, 512, 1024, 2048, 4096, 8192].map((it) => [it, `${it} channels`]), 1024, reopen);
  const pace = select("Rows", "rows", [1, 5, 10, 25].map((it) => [it, `${it} a second`]), 10, reopen);
  const weights = select("Window", "window", WINDOWS, "hann", reopen);
  const average = select("Average", "average", [[1, "none"], [4, "4 rows"], [16, "16 rows"], [64, "64 rows"]], 4, () => {});
  const hold = element("input", { type: "checkbox", name: "hold", onchange: () => {
    view.peak = null;
    draw();
  } });
  const pause = element("button", { type: "button", "aria-pressed": "false", onclick: () => {
    const paused = pause.getAttribute("aria-pressed") !== "true";
    pause.setAttribute("aria-pressed", paused);
    open();
  } }, "Pause");
  const lose = element("button", { type: "button", class: "danger", id: "lose", hidden: true,
    onclick: () => act(() => call("POST", "/api/v1/demo/loss", { packets: 20 })) }, "Lose 20 packets");
  const auto = element("input", { type: "checkbox", name: "auto", checked: true, onchange: draw });
  const bound = (name, label) => {
    const input = element("input", { type: "number", name, step: 5, oninput: () => {
      auto.checked = false;
      draw();
    } });
    return { input, field: element("label", {}, label, input) };
  };
  const [low, high] = [bound("low", "From (dB)"), bound("high", "To (dB)")];

  const spectrum = element("canvas", { id: "spectrum", role: "slider", tabindex: 0, "aria-label": "Marker in the spectrum", "aria-valuemin": 0, "aria-valuenow": 0, "aria-valuemax": 0 });
  const fall = element("canvas", { id: "waterfall", role: "img", "aria-label": "Waterfall: the newest row is at the top" });
  const history = element("canvas", { id: "power", role: "img" });
  const states = element("canvas", { id: "states", role: "img" });
  const [reading, span, state] = [element("output", { id: "reading" }), element("p", { class: "soft", id: "span" }), element("p", { id: "stream-state", role: "status" })];
  const facts = Object.fromEntries(["Scan", "Samples", "Time (UTC)", "Total power", "Mean", "Transforms in a row", "Blocks passed over", "Lost"]
    .map((name) => [name, element("dd")]));
  const list = element("dl", { class: "facts" }, ...Object.entries(facts).map(([name, value]) => element("div", {}, element("dt", {}, name), value)));
  const fractions = element("tbody");
  const header = element("dl", { class: "facts" });
  const bytes = element("code", { class: "bytes" });
  const headed = section("header-title", "Packet header", header, bytes);
  headed.hidden = true;
  const column = (name) => element("th", { scope: "col" }, name);
  const table = element("table", {}, element("thead", {}, element("tr", {}, column("Level"), column("Samples"), column("Gaussian"))), fractions);
  const counted = section("states-title", "Sample states", states, table);
  const page = [
    section("stream-title", "Stream", element("div", { class: "row choices" }, which.field, thread.field, channel.field, size.field, pace.field, weights.field, average.field),
      list, state, element("div", { class: "actions" }, ...(scan ? [element("label", {}, "Time in the scan ", at, time), play] : [pause, lose]))),
    element("div", { class: "split" },
      section("spectrum-title", "Spectrum", reading, spectrum, fall, span,
        element("div", { class: "actions" },
          element("label", { class: "check" }, hold, "Peak hold"), element("label", { class: "check" }, auto, "Automatic range"), low.field, high.field,
          element("button", { type: "button", onclick: () => act(picture) }, "Save PNG"),
          element("button", { type: "button", onclick: () => act(sheet) }, "Save CSV"))),
      element("div", {}, counted, section("power-title", "Total power", history), headed)),
  ];
  const falling = waterfall(fall);
  fall.dataset.kind = falling.kind;

  /** The address of the spectra that are chosen; empty if there are none. */
  const address = () => {
    const [id, name] = which.node.value.split("/");
    if (!name || document.hidden || pause.getAttribute("aria-pressed") === "true") return "";
    const query = new URLSearchParams({ stream: name, channels: size.node.value, channel: channel.node.value || 0, window: weights.node.value });
    if (thread.node.value) query.set("thread", thread.node.value);
    if (scan) return `/api/v1/scans/${encodeURIComponent(scan)}/spectrum?${query}`;
    query.set("rows", pace.node.value);
    return `/api/v1/recordings/${id}/spectra?${query}`;
  };

  const forget = () => {
    [view.row, view.linear, view.peak, view.powers, view.passed, view.times] = [null, null, null, [], 0, []];
    falling.clear();
  };

  /** Lists the streams of the scan. */
  async function loadScan() {
    const [{ manifest }, { scans }] = await Promise.all([call("GET", `/api/v1/scans/${encodeURIComponent(scan)}`), call("GET", `/api/v1/scans?limit=1&prefix=${encodeURIComponent(scan)}`)]);
    time.max = (scans[0]?.duration_ns ?? 0) / 1e9;
    offer(which.node, manifest.streams.map(({ name }) => [`scan/${name}`, `${scan} / ${name}`]));
    open();
  }

  /** Reads the row at the time that is chosen, and the next ones while it plays. */
  async function step() {
    say(at, `${Number(time.value).toFixed(3)} s`);
    const to = address();
    if (view.reading || !to) return;
    view.reading = true;
    const wish = time.value;
    try {
      const answer = await fetch(`${to}&after=${wish}`);
      if (!answer.ok) throw new Problem(answer.status, (await answer.json()).detail);
      if (to === asked) readMessages(await answer.arrayBuffer()).forEach(heard);
    } catch (problem) {
      say(state, problem.message);
      play.setAttribute("aria-pressed", "false");
    } finally {
      view.reading = false;
    }
    if (view.gone) return;
    if (time.value !== wish || to !== asked) step();
    else if (play.getAttribute("aria-pressed") === "true" && Number(wish) < Number(time.max)) {
      time.value = Number(wish) + 1 / Number(pace.node.value);
      timer = setTimeout(step, 1000 / Number(pace.node.value));
    }
  }

  const heard = (data) => (typeof data === "string" ? told(JSON.parse(data)) : take(readRow(data)));

  /** Opens the socket of what is chosen, or closes it. */
  function open() {
    const to = refused ? "" : address();
    if (to === asked && (socket || scan)) return;
    close();
    if (!to) return;
    asked = to;
    forget();
    if (scan) return step();
    const made = new WebSocket(`${location.origin.replace(/^http/, "ws")}${to}`);
    socket = made;
    made.binaryType = "arraybuffer";
    say(state, "Waiting for samples …");
    made.onmessage = ({ data }) => heard(data);
    made.onclose = () => {
      if (socket !== made) return;
      socket = null;
      timer = setTimeout(() => {
        timer = null;
        open();
      }, 1000);
    };
  }

  function close() {
    clearTimeout(timer);
    timer = null;
    const old = socket;
    [socket, asked] = [null, ""];
    old?.close();
  }

  function told(it) {
    if (it.event === "refused") {
      refused = true;
      say(state, [it.error, it.advice].filter(Boolean).join(". "));
      close();
    } else if (it.event === "stream") {
      view.stream = it;
      say(facts.Scan, it.scan);
      say(facts.Samples, it.samples);
      offer(thread.node, [["", "first"], ...it.threads.map((n) => [String(n), String(n)])]);
      offer(channel.node, Array.from({ length: Math.min(it.channels, 1024) }, (_, n) => [String(n), it.channel_names[n] ?? String(n)]));
    } else if (it.event === "header") {
      headed.hidden = false;
      say(bytes, it.bytes.replace(/(.{8})/g, "$1 ").trim());
      keyed(header, [["format", it.format], ...it.fields], ([name]) => name, ([name]) => element("div", {}, element("dt", {}, name), element("dd")),
        (node, [, value]) => say(node.lastChild, value));
    }
  }

  function take(row) {
    if (!row) return;
    say(state, "");
    folded(view, row, 1 / Number(average.node.value));
    view.row = row;
    view.passed += row.skipped;
    view.powers.push(row.power);
    if (view.powers.length > POWERS) view.powers.shift();
    falling.add(row);
    view.times = [...view.times, row.time].slice(-ROWS);
    draw();
  }

  /** Draws once for all rows that come before the next picture of the screen. */
  function draw() {
    frame ??= requestAnimationFrame(() => {
      frame = null;
      if (view.row) paint();
    });
  }

  function paint() {
    const { row, levels } = view;
    if (auto.checked) {
      const [from, to] = rangeOf(levels);
      // The range does not follow each row: colours would flicker.
      if (from < view.range[0] || to > view.range[1] || from > view.range[0] + 15 || to < view.range[1] - 15) view.range = [from, to];
      [low.input.value, high.input.value] = view.range;
    } else if (Number(low.input.value) < Number(high.input.value)) {
      view.range = [Number(low.input.value), Number(high.input.value)];
    }
    const [from, to] = view.range;
    fit(fall);
    falling.draw(from, to);
    const shown = [{ values: levels, colour: "accent" }];
    if (hold.checked && view.peak) shown.unshift({ values: view.peak, colour: "bad", thin: true });
    curves(spectrum, { low: from, high: to, unit: "dB", curves: shown, axis: axisOf(row), marker: view.marker === null ? null : (view.marker + 0.5) / row.channels });
    const powers = view.powers.filter(Number.isFinite);
    const [least, most] = [Math.min(...powers), Math.max(...powers)];
    curves(history, { low: least - 0.5, high: most + 0.5, unit: "dB", curves: [{ values: view.powers, colour: "good" }], axis: [], marker: null });
    history.setAttribute("aria-label", `Total power of the last ${powers.length} rows: ${decibels(least)} to ${decibels(most)}`);
    counted.hidden = row.measured.length === 0;
    bars(states, row.measured, row.expected);
    fill(row);
    read();
  }

  function axisOf(row) {
    const [unit, scale] = row.isHertz ? unitOf(Math.max(Math.abs(row.first), Math.abs(row.first + row.channels * row.spacing))) : ["cycles/sample", 1];
    const [first, last] = [row.first / scale, (row.first + row.channels * row.spacing) / scale];
    return ticks(first, last, spectrum.clientWidth / 110).map((value) => ({ place: (value - first) / (last - first), text: `${written(value)} ${unit}` }));
  }

  function fill(row) {
    say(facts["Time (UTC)"], clock(row.time));
    say(facts["Total power"], decibels(row.power));
    say(facts.Mean, row.mean.toFixed(3).replace("-", "−"));
    say(facts["Transforms in a row"], count(row.transforms));
    say(facts["Blocks passed over"], count(view.passed));
    const rows = view.times.length;
    say(span, `${clock(row.time)} at the top, ${clock(view.times[0])} in row ${rows} below; frequencies as above`);
    const share = (it) => `${(100 * it).toFixed(1)} %`;
    const few = row.measured.length <= 16;
    table.hidden = !few;
    const items = few ? row.measured.map((it, at) => ({ at, level: view.stream?.levels[at], measured: share(it), expected: share(row.expected[at]) })) : [];
    keyed(fractions, items, ({ at }) => at, () => element("tr", {}, element("th", { scope: "row" }), element("td"), element("td")), (node, it) => {
      say(node.children[0], written(Number((it.level ?? it.at).toFixed(2))));
      say(node.children[1], it.measured);
      say(node.children[2], it.expected);
    });
    states.setAttribute("aria-label", few ? "Fractions of the samples, as in the table" : `Fractions of the samples at ${row.measured.length} levels, with a Gaussian curve`);
  }

  /** Reads the marker. */
  function read() {
    const { row, levels, marker } = view;
    const peak = levels.indexOf(Math.max(...levels));
    const text = marker === null ? `highest: ${frequency(row, peak)}, ${decibels(levels[peak])}` : `marker: ${frequency(row, marker)}, ${decibels(levels[marker])}`;
    say(reading, text);
    const at = marker ?? peak;
    for (const [name, value] of [["valuemax", row.channels - 1], ["valuenow", at], ["valuetext", `${frequency(row, at)}, ${decibels(levels[at])}`]]) spectrum.setAttribute(`aria-${name}`, value);
  }

  function mark(to) {
    if (!view.row) return;
    view.marker = to === null ? null : Math.max(0, Math.min(view.row.channels - 1, Math.round(to)));
    draw();
  }
  for (const canvas of [spectrum, fall]) {
    canvas.addEventListener("pointerdown", (event) => mark((event.offsetX / canvas.clientWidth) * (view.row?.channels ?? 0) - 0.5));
  }
  spectrum.addEventListener("keydown", (event) => {
    if (!view.row) return;
    const { channels } = view.row;
    const peak = () => view.levels.indexOf(Math.max(...view.levels));
    const at = view.marker ?? peak();
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, ArrowDown: at - 1, ArrowUp: at + 1, PageDown: at - channels / 10, PageUp: at + channels / 10, Home: 0, End: channels - 1, p: peak(), Escape: null }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    mark(to);
  });

  function save(blob, ending) {
    const link = element("a", { href: URL.createObjectURL(blob), download: `${view.stream?.scan ?? "stream"}_${view.stream?.stream ?? ""}.${ending}` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }

  async function picture() {
    if (!view.row) throw new Error("There is no spectrum yet.");
    const canvas = element("canvas");
    [canvas.width, canvas.height] = [spectrum.width, spectrum.height + fall.height];
    const context = canvas.getContext("2d");
    context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--card");
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(spectrum, 0, 0);
    context.drawImage(fall, 0, spectrum.height);
    save(await new Promise((resolve) => canvas.toBlob(resolve, "image/png")), "png");
  }

  async function sheet() {
    const { row, levels, peak } = view;
    if (!row) throw new Error("There is no spectrum yet.");
    const head = `# ${view.stream?.scan} ${view.stream?.stream} thread ${row.thread} channel ${row.channel} ${new Date(row.time * 1000).toISOString()}\n`;
    const lines = Array.from(levels, (level, at) => `${row.first + at * row.spacing},${level.toFixed(3)},${peak[at].toFixed(3)}`);
    save(new Blob([`${head}${row.isHertz ? "frequency_hz" : "cycles_per_sample"},level_db,peak_db\n${lines.join("\n")}\n`], { type: "text/csv" }), "csv");
  }

  const update = (newest) => {
    status = newest;
    lose.hidden = !status.demo || role === "viewer";
    if (scan) return;
    const active = status.recordings.filter((it) => it.phase !== "ended");
    const streams = active.flatMap((it) => (it.progress?.streams ?? []).map((of) => ({ of, id: it.id, scan: it.scan, recording: it })));
    offer(which.node, streams.map(({ of, id, scan }) => [`${id}/${of.name}`, `${nameOf(scan)} / ${of.name}`]));
    if (wanted.length === 2 && streams.some(({ of, id }) => id === wanted[0] && of.name === wanted[1])) which.node.value = wanted.splice(0).join("/");
    if (!streams.length) say(state, active.length ? "No stream has begun." : "No recording runs.");
    const chosen = streams.find(({ of, id }) => which.node.value === `${id}/${of.name}`);
    const missing = chosen ? lost(chosen.of) : 0;
    const before = chosen && !missing ? lostBefore(chosen.recording) : undefined;
    const now = () => `${count(missing)} of ${count(chosen.of.frames + missing)} frames`;
    say(facts.Lost, !chosen ? "–" : before ? `${before.headline.replace(/^LOST /, "")}, in ${before.scan}` : now());
    facts.Lost.parentElement.className = missing || before ? "bad" : "";
    // A socket that was lost is opened again after a second, and not before.
    if (timer === null || address() !== asked) open();
  };

  const seen = () => open();
  const again = () => draw();
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  if (scan) {
    say(facts.Lost, "–");
    act(loadScan);
  }
  document.addEventListener("visibilitychange", seen);
  addEventListener("resize", again);
  scheme.addEventListener("change", again);
  const leave = () => {
    document.removeEventListener("visibilitychange", seen);
    removeEventListener("resize", again);
    scheme.removeEventListener("change", again);
    cancelAnimationFrame(frame);
    view.gone = true;
    close();
    falling.close();
  };
  return { page, update, leave };
}
