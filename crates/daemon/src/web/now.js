// The page Now: what is recorded, whether anything is lost, and where it goes.

import { call } from "./api.js";
import { bytes, count, element, keyed, nameOf, rate, say, svg, time, when } from "./dom.js";
import { transfers } from "./transfers.js";

const WORDS = { starting: "STARTING", waiting: "WAITING", armed: "ARMED", recording: "RECORDING", stopping: "STOPPING", ended: "ENDED" };

/** Rates of the last minute of each stream, for its curve. */
const histories = new Map();
const HISTORY = 60;

export const lost = (stream) => stream.missing + stream.overrun + stream.damaged + stream.late;

/** The newest finished scan of a recording that lost frames: its counters begin again with each scan. */
export const lostBefore = (recording) => recording.finished.findLast((scan) => scan.complete === false);

/** The page. `tools` has `act` (runs an action and shows its problem) and `confirm`. */
export function now(tools) {
  const may = tools.role !== "viewer";
  const state = element("strong");
  const facts = element("span");
  const big = element("section", { class: "state idle", "aria-label": "State" }, state, facts);
  state.setAttribute("role", "status");
  const running = element("div");
  const members = element("tbody");
  const ended = element("ul", { class: "plain" });
  const next = element("tbody");
  const plans = element("ul", { class: "plain" });
  const scheduled = element("section", { "aria-labelledby": "next-title" },
    element("h2", { id: "next-title" }, "The next scans"),
    element("div", { class: "wide" }, element("table", {},
      head("Scan", "Starts (UTC)", "In", "Length", "Target", "Schedule"), next)),
    plans);
  const sent = transfers();
  const page = [
    big,
    running,
    scheduled,
    may ? startForm(tools) : "",
    sent.page,
    element("section", { "aria-labelledby": "members-title" },
      element("h2", { id: "members-title" }, "Members"),
      element("div", { class: "wide" }, element("table", {},
        head("Directory", "Free", "Of", "Used", "Written", "Longest write", "State"), members))),
    element("section", { "aria-labelledby": "ended-title" },
      element("h2", { id: "ended-title" }, "Ended"), ended),
  ];
  const update = (status) => {
    const active = status.recordings.filter((it) => it.phase !== "ended");
    summary(big, state, facts, active, status);
    keyed(running, active, (it) => it.id, (it) => section(it, tools, may), (node, it) => node.update(it));
    keyed(members, status.members, (it) => it.path, memberRow, (row, it) => fillMember(row, it, active));
    const over = status.recordings.filter((it) => it.phase === "ended");
    keyed(ended, over, (it) => it.id, () => element("li"), (item, it) => say(item, endedText(it)));
    sent.update(status.transfers);
    scheduled.hidden = status.schedules.length === 0;
    const clock = Date.parse(status.time);
    keyed(next, status.next_scans, (it) => `${it.schedule}/${it.scan}`, nextRow, (row, it) => fillNext(row, it, clock));
    keyed(plans, status.schedules, (it) => it.name, (it) => planItem(it, tools, may), (item, it) => item.update(it));
    forget(active);
  };
  return { page, update };
}

const head = (...names) => element("thead", {}, element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name))));

function summary(big, state, facts, active, status) {
  const order = ["recording", "stopping", "armed", "waiting", "starting"];
  const phase = order.find((it) => active.some((recording) => recording.phase === it)) ?? "idle";
  const streams = active.flatMap((it) => it.progress?.streams ?? []);
  const gone = streams.reduce((sum, stream) => sum + lost(stream), 0);
  const before = active.map(lostBefore).find(Boolean);
  const bad = gone || before;
  big.className = `state ${phase}${bad ? " bad" : ""}`;
  say(state, phase === "idle" ? "IDLE" : WORDS[phase]);
  const full = Math.min(...active.map((it) => it.progress?.seconds_until_full ?? Infinity));
  const free = status.members.reduce((sum, it) => sum + (it.free_bytes ?? 0), 0);
  const parts = phase === "idle" ? [`${bytes(free)} free`] : [
    active.map((it) => nameOf(it.scan)).filter(Boolean).join(", "),
    rate(streams.reduce((sum, stream) => sum + stream.rate, 0)),
    gone ? `${count(gone)} frames LOST` : before ? `${before.scan}: ${before.headline}` : "nothing lost",
    Number.isFinite(full) ? `full in ${time(full)}` : "",
  ];
  say(facts, parts.filter(Boolean).join(" · "));
  facts.className = bad ? "bad" : "";
  document.title = `${phase === "idle" ? "Idle" : WORDS[phase]}${bad ? " – LOST" : ""} – fullbore`;
}

function nextRow() {
  return element("tr", {}, element("th", { scope: "row" }), ...Array.from({ length: 5 }, () => element("td")));
}

function fillNext(row, scan, clock) {
  const [name, start, left, length, target, schedule] = row.children;
  const [begins, ends] = [Date.parse(scan.start), Date.parse(scan.end)];
  say(name, `${scan.session}_${scan.scan}`);
  say(start, when(scan.start));
  say(left, begins > clock ? time((begins - clock) / 1000) : "now");
  say(length, time((ends - begins) / 1000));
  say(target, scan.target ?? "–");
  say(schedule, scan.schedule);
}

/** A schedule: its state, and how to cancel it. */
function planItem(schedule, { act, confirm }, may) {
  const text = element("span");
  const cancel = element("button", {
    type: "button", class: "danger",
    onclick: async () => {
      const what = `Cancel the schedule ${schedule.name}? Its running scan is sealed, and those ahead are not recorded.`;
      if (await confirm(what, "Cancel the schedule")) {
        act(() => call("DELETE", `/api/v1/schedules/${schedule.name}`));
      }
    },
  }, `Cancel ${schedule.name}`);
  const item = element("li", {}, text, " ", may ? cancel : "");
  item.update = (it) => {
    item.className = it.problem ? "bad" : "";
    const scans = `${count(it.ahead)} ${it.ahead === 1 ? "scan" : "scans"} ahead`;
    say(text, `${it.name}: ${it.state}, ${scans}${it.problem ? `: ${it.problem}` : ""}`);
    cancel.hidden = it.state === "cancelled";
  };
  return item;
}

/** The name of a recording, before it has a scan. */
const planned = ({ request }) => (request.schedule ? `schedule ${request.schedule}` : `${request.session}_${request.scan}`);

/** A recording that runs. */
function section(recording, { act, confirm }, may) {
  const base = `/api/v1/recordings/${recording.id}`;
  const title = element("h2");
  const fields = Object.fromEntries(["For", "Received", "Safe on disk", "Left"].map((name) => [name, element("dd")]));
  const facts = element("dl", { class: "facts" },
    ...Object.entries(fields).map(([name, value]) => element("div", {}, element("dt", {}, name), value)));
  const rows = element("tbody");
  const warnings = element("ul", { class: "warnings wait" });
  const text = element("input", { name: "text", maxlength: 500, required: true, autocomplete: "off" });
  const mark = element("form", {
    onsubmit: (event) => {
      event.preventDefault();
      act(async () => {
        await call("POST", `${base}/marks`, { text: text.value });
        text.value = "";
      });
    },
  }, element("label", {}, "Note", text), element("button", {}, "Mark"));
  const stop = element("button", {
    type: "button", class: "danger stop",
    onclick: async () => {
      const what = title.textContent;
      if (await confirm(`Stop ${what}? What it holds is written, and the scan is sealed.`, "Stop")) {
        act(() => call("POST", `${base}/stop`));
      }
    },
  }, "Stop");
  const node = element("section", { class: "running" }, title, facts,
    element("div", { class: "wide" }, element("table", {},
      head("Stream", "So far", "Lost", "Rate", "Last minute", "Frames", "Ring"), rows)),
    warnings,
    may ? element("div", { class: "actions" }, mark, stop) : "");
  node.update = (it) => {
    say(title, `${nameOf(it.scan) || planned(it)}: ${it.phase}`);
    const { progress } = it;
    say(fields.For, time(progress?.seconds));
    say(fields.Received, bytes(progress?.bytes));
    say(fields["Safe on disk"], bytes(progress?.durable_bytes));
    say(fields.Left, time(progress?.seconds_left));
    const streams = progress?.streams ?? [];
    // A finished scan tells its losses of all streams together.
    const before = streams.length === 1 && lostBefore(it);
    keyed(rows, streams, (stream) => stream.name, streamRow, (row, stream) => fillStream(row, stream, it.id, before));
    keyed(warnings, it.warnings.slice(-3), (warning) => warning, () => element("li"), (item, warning) => say(item, warning));
    stop.disabled = it.phase === "stopping";
  };
  return node;
}

function streamRow() {
  const cells = Array.from({ length: 6 }, () => element("td"));
  const curve = svg("svg", { class: "spark", viewBox: `0 0 ${HISTORY} 20`, preserveAspectRatio: "none", "aria-hidden": "true" }, svg("polyline", {}));
  cells[3].append(curve);
  return element("tr", {}, element("th", { scope: "row" }, element("a")), ...cells);
}

function fillStream(row, stream, id, before) {
  const [name, soFar, gone, speed, curve, frames, ring] = row.children;
  const missing = lost(stream);
  row.className = missing || before ? "lost" : stream.silent ? "silent" : "";
  say(name.firstChild, stream.name);
  name.firstChild.href = `#stream/${id}/${encodeURIComponent(stream.name)}`;
  say(speed, rate(stream.rate));
  say(frames, count(stream.frames));
  say(gone, missing ? reasons(stream) : "0");
  say(ring, `${stream.used_blocks} of ${stream.high_water[1]}, most ${stream.high_water[0]}`);
  say(soFar, missing ? "LOST" : before ? "LOST before" : stream.silent ? "silent" : "complete");
  draw(curve.firstChild.firstChild, remember(`${id}/${stream.name}`, stream.rate));
}

const reasons = (stream) => ["missing", "overrun", "damaged", "late"]
  .filter((term) => stream[term]).map((term) => `${count(stream[term])} ${term}`).join(", ");

/** One value a second of each stream. */
function remember(key, value) {
  const history = histories.get(key) ?? { at: 0, values: [] };
  histories.set(key, history);
  const second = Math.floor(Date.now() / 1000);
  if (second !== history.at) {
    history.at = second;
    history.values.push(value);
    if (history.values.length > HISTORY) history.values.shift();
  }
  return history.values;
}

function forget(active) {
  for (const key of histories.keys()) {
    if (!active.some((it) => key.startsWith(it.id))) histories.delete(key);
  }
}

function draw(line, values) {
  const most = Math.max(...values, 1);
  line.setAttribute("points", values.map((value, at) => `${at},${(19 - (18 * value) / most).toFixed(1)}`).join(" "));
}

function memberRow() {
  const used = element("meter", { min: 0, max: 1, low: 0.8, high: 0.95, optimum: 0 });
  const cells = Array.from({ length: 6 }, () => element("td"));
  cells[2].append(used);
  return element("tr", {}, element("th", { scope: "row" }), ...cells);
}

function fillMember(row, member, active) {
  const [path, free, total, used, written, longest, state] = row.children;
  const writers = active.flatMap((it) => it.progress?.members ?? []).filter((it) => it.path === member.path);
  const problem = member.problem ?? writers.find((it) => it.failure)?.failure;
  row.className = problem ? "lost" : "";
  say(path, member.path);
  say(free, bytes(member.free_bytes));
  say(total, bytes(member.total_bytes));
  const share = member.total_bytes ? 1 - (member.free_bytes ?? 0) / member.total_bytes : 0;
  used.firstChild.value = share;
  used.firstChild.setAttribute("aria-label", `${Math.round(100 * share)} % used`);
  say(written, rate(writers.reduce((sum, it) => sum + it.rate, 0)));
  say(longest, `${Math.max(0, ...writers.map((it) => it.longest_write_ns / 1e6)).toFixed(1)} ms`);
  say(state, problem ?? "good");
}

function endedText(recording) {
  const scans = recording.finished.map((it) => `${it.scan}: ${it.headline}${it.unsealed ? ` (not sealed: ${it.unsealed})` : ""}`);
  if (scans.length) return scans.slice(-3).join("; ");
  return `${planned(recording)}: ${recording.complaint?.error ?? "ended; the page Scans shows its account"}`;
}

function startForm({ act }) {
  const field = (name, label, options = {}) => element("label", {}, label,
    element("input", { name, autocomplete: "off", spellcheck: "false", ...options }));
  const submit = element("button", { class: "main" }, "Record");
  const form = element("form", {
    class: "row", id: "start",
    onsubmit: (event) => {
      event.preventDefault();
      const given = Object.fromEntries([...new FormData(form)].filter(([, value]) => value.trim() !== ""));
      const request = { ...given, source: given.source.trim().split(/\s+/) };
      submit.disabled = true;
      act(() => call("POST", "/api/v1/recordings", request)).finally(() => {
        submit.disabled = false;
      });
    },
  },
  field("source", "Sources", { required: true, placeholder: "udp://0.0.0.0:46220-46227?format=vdif" }),
  field("session", "Session", { required: true }),
  field("scan", "Scan", { required: true }),
  field("duration", "Length", { placeholder: "until Stop" }),
  field("buffer", "Block memory", { placeholder: "by the rate" }),
  submit);
  return element("section", { "aria-labelledby": "start-title" }, element("h2", { id: "start-title" }, "Start a recording"), form);
}
