// The page Schedule: the day as a timeline of scans, what the schedules need, and how one is checked, put and removed.

import { call } from "./api.js";
import { bytes, count, element, keyed, rate, say, svg, time, when } from "./dom.js";
import { row, section, table } from "./findings.js";

/** Time between two requests, in milliseconds. */
const EVERY = 5000;

const DAY = 86_400_000;

/** Scans of the day that are listed. The timeline shows all. */
const LISTED = 200;

const WORDS = { stored: "stored", recording: "recording", ahead: "ahead", missed: "MISSED", cancelled: "cancelled" };

const bad = (it) => it.moment === "missed" || it.complete === false || Boolean(it.problem);

/** The verdict of a scan in words. */
const toldOf = (it) => it.problem ?? it.headline ?? it.verdict;
const verdictOf = (it) => toldOf(it) ?? WORDS[it.moment];

/** The page. */
export function schedule(tools) {
  const { act, confirm, role } = tools;
  const may = role !== "viewer";
  const day = element("input", { type: "date", name: "day", onchange: () => act(load) });
  const picture = svg("svg", { id: "timeline", tabindex: "0", role: "img", viewBox: "0 0 1000 88", preserveAspectRatio: "none" });
  const reading = element("output", { id: "reading" });
  const scans = element("tbody", { id: "day" });
  const needs = element("tbody", { id: "needs" });
  const plans = element("ul", { class: "plain", id: "schedules" });
  let [told, chosen, timer, gone, clock] = [null, null, null, false, Date.now()];
  day.value = new Date().toISOString().slice(0, 10);

  const choose = (place) => {
    if (!told?.scans.length) return;
    chosen = Math.max(0, Math.min(told.scans.length - 1, place));
    show();
  };
  picture.addEventListener("keydown", (event) => {
    const now = told?.scans.findIndex((it) => Date.parse(it.end) > clock) ?? 0;
    const steps = { ArrowRight: (chosen ?? Math.max(now, 0) - 1) + 1, ArrowLeft: (chosen ?? Math.max(now, 0) + 1) - 1, Home: 0, End: Infinity };
    if (!(event.key in steps)) return;
    event.preventDefault();
    choose(steps[event.key]);
  });
  picture.addEventListener("click", (event) => {
    const place = [...picture.querySelectorAll("rect")].indexOf(event.target);
    if (place >= 0) choose(place);
  });

  const show = () => {
    if (!told) return;
    draw(picture, told, chosen, clock);
    const it = told.scans[chosen];
    const text = told.scans.length ? "Left and right arrow keys go from scan to scan." : "No scans on this day.";
    reading.className = it ? "" : "soft";
    say(reading, it ? `${it.scan}: ${when(it.start)} to ${it.end.slice(11, 19)} UTC${it.target ? `, ${it.target}` : ""}: ${verdictOf(it)}` : text);
    picture.setAttribute("aria-label", `${told.scans.length} scans on ${day.value}. ${reading.textContent}`);
    const first = Math.max(0, Math.min(told.scans.findIndex((scan) => Date.parse(scan.end) > clock - 3_600_000), told.scans.length - LISTED));
    keyed(scans, told.scans.slice(first, first + LISTED), (scan) => `${scan.scan}/${scan.start}/${scan.moment}`, scanRow, fillScan);
    keyed(needs, told.outlooks, (it) => it.schedule, () => needRow(), fillNeed);
  };
  const load = async () => {
    const asked = day.value;
    const from = Date.parse(`${asked}T00:00:00Z`);
    if (!Number.isFinite(from)) return;
    const query = new URLSearchParams({ from: new Date(from).toISOString(), until: new Date(from + DAY).toISOString() });
    const fresh = await call("GET", `/api/v1/timeline?${query}`);
    // Another day may have been chosen meanwhile.
    if (gone || day.value !== asked) return;
    const key = (it) => `${it.scan}/${it.start}`;
    const before = chosen === null ? null : key(told.scans[chosen]);
    told = fresh;
    const place = told.scans.findIndex((it) => key(it) === before);
    chosen = place >= 0 ? place : null;
    show();
  };
  const again = () => load().catch((problem) => say(reading, problem.message)).finally(() => {
    if (!gone) timer = setTimeout(again, EVERY);
  });
  again();

  const page = [
    section("day-title", "The day (UTC)", element("div", { class: "actions" }, element("label", {}, "Day", day)), picture, reading,
      table(scans, "Scan", "Starts (UTC)", "Length", "Target", "Schedule", "State", "Verdict")),
    section("needs-title", "What the schedules need", table(needs, "Schedule", "Scans ahead", "Rate", "Rate by", "Needs", "Free", "Fits"), plans),
    may ? putForm(tools, load) : "",
  ];
  const update = (status) => {
    clock = Date.parse(status.time);
    keyed(plans, status.schedules, (it) => it.name, (it) => planItem(it, act, confirm, may), (item, it) => item.update(it));
  };
  const leave = () => {
    gone = true;
    clearTimeout(timer);
  };
  return { page, update, leave };
}

/** The scans as bars between midnight and midnight. */
function draw(picture, { from, until, scans }, chosen, clock) {
  const [begin, end] = [Date.parse(from), Date.parse(until)];
  const x = (moment) => (1000 * (Math.max(begin, Math.min(end, moment)) - begin)) / (end - begin);
  const hours = Array.from({ length: 9 }, (_, n) => n * 3);
  const lines = hours.map((hour) => svg("line", { x1: (1000 * hour) / 24, x2: (1000 * hour) / 24, y1: 0, y2: 70 }));
  const texts = hours.slice(0, -1).map((hour) => svg("text", { x: (1000 * hour) / 24 + 3, y: 84 }, String(hour).padStart(2, "0")));
  const bars = scans.map((it, place) => svg("rect", {
    x: x(Date.parse(it.start)).toFixed(2), y: 12, height: 46,
    width: Math.max(1, x(Date.parse(it.end)) - x(Date.parse(it.start))).toFixed(2),
    class: `${bad(it) ? "lost" : it.moment}${place === chosen ? " chosen" : ""}`,
  }, svg("title", {}, `${it.scan}: ${verdictOf(it)}`)));
  const now = clock > begin && clock < end ? [svg("line", { x1: x(clock), x2: x(clock), y1: 0, y2: 70, class: "now" })] : [];
  picture.replaceChildren(...lines, ...bars, ...now, ...texts);
}

function scanRow(scan) {
  const node = row(6);
  node.lastChild.className = "text";
  if (scan.moment === "stored") node.firstChild.append(element("a", { href: `#stream/scan/${encodeURIComponent(scan.scan)}` }));
  return node;
}

function fillScan(node, it) {
  node.className = bad(it) ? "lost" : "";
  say(node.firstChild.firstChild ?? node.firstChild, it.scan);
  const length = time((Date.parse(it.end) - Date.parse(it.start)) / 1000);
  const texts = [when(it.start), length, it.target ?? "–", it.schedule ?? "–", WORDS[it.moment], it.moment === "missed" ? verdictOf(it) : toldOf(it) ?? ""];
  texts.forEach((text, place) => say(node.children[place + 1], text));
}

function needRow() {
  const node = row(6);
  node.lastChild.className = "text";
  return node;
}

function fillNeed(node, it) {
  node.className = it.full ? "lost" : it.problems.length ? "silent" : "";
  const fits = it.problems.length ? it.problems.join("\n") : it.rate === null ? "not known: nothing tells the rate yet" : "fits";
  const texts = [it.schedule, count(it.ahead), it.rate === null ? "–" : rate(it.rate), it.rate_by ?? "–", bytes(it.needed_bytes), bytes(it.free_bytes), fits];
  texts.forEach((text, place) => say(node.children[place], text));
}

/** A schedule: its state, and how to remove it. */
function planItem(schedule, act, confirm, may) {
  const text = element("span");
  const remove = element("button", {
    type: "button", class: "danger",
    onclick: async () => {
      const what = `Remove the schedule ${schedule.name}? Its running scan is sealed, and those ahead are not recorded.`;
      if (await confirm(what, "Remove the schedule")) act(() => call("DELETE", `/api/v1/schedules/${schedule.name}`));
    },
  }, `Remove ${schedule.name}`);
  const item = element("li", {}, text, " ", may ? remove : "");
  item.update = (it) => {
    item.className = it.problem ? "bad" : "";
    say(text, `${it.name}: ${it.state}, ${count(it.ahead)} ahead${it.problem ? `: ${it.problem}` : ""}`);
    remove.hidden = it.state === "cancelled";
  };
  return item;
}

function putForm({ act }, load) {
  const field = (name, label, options = {}) => element("label", {}, label,
    element("input", { name, autocomplete: "off", spellcheck: "false", ...options }));
  const text = element("textarea", { name: "scans", required: true, spellcheck: "false" });
  const file = element("input", { type: "file", name: "file", onchange: async () => {
    const [chosen] = file.files;
    if (!chosen) return;
    text.value = await chosen.text();
    if (!form.elements.name.value) form.elements.name.value = chosen.name.replace(/\..*$/, "").replace(/[^A-Za-z0-9_+-]/g, "-");
  } });
  const result = element("p", { class: "text", id: "checked", role: "status" });
  const request = () => {
    const given = Object.fromEntries(["session", "station", "lead"].map((name) => [name, form.elements[name].value.trim()]).filter(([, value]) => value));
    return { options: { source: form.elements.source.value.trim().split(/\s+/), ...given }, scans: text.value };
  };
  const check = async () => {
    say(result, "");
    const told = await call("POST", "/api/v1/schedule-check", request());
    const { outlook, count: number, scans } = told;
    const space = outlook.needed_bytes === null ? "the rate is not known" : `${bytes(outlook.needed_bytes)} of ${bytes(outlook.free_bytes)}`;
    const lines = [`${number} scans of ${outlook.session}, ${when(scans[0].start)} to ${when(scans.at(-1).end)} UTC; ${space}.`, ...outlook.notes, ...outlook.problems];
    say(result, lines.join("\n"));
    result.className = `text${outlook.problems.length ? " wait" : ""}`;
  };
  const form = element("form", {
    id: "put",
    onsubmit: (event) => {
      event.preventDefault();
      const name = form.elements.name.value.trim();
      if (event.submitter?.name === "check") return act(check);
      act(async () => {
        const put = await call("PUT", `/api/v1/schedules/${encodeURIComponent(name)}`, request());
        say(result, put.problem ?? `${put.name}: ${put.ahead} scans ahead.`);
        result.className = `text${put.problem ? " bad" : ""}`;
        await load();
      });
    },
  },
  element("div", { class: "row" }, field("name", "Name", { required: true }), field("source", "Sources", { required: true, placeholder: "input:vlbi" }),
    field("session", "Session", { placeholder: "that of the schedule" }), field("station", "Station", { placeholder: "for VEX" }),
    field("lead", "Armed before the start", { placeholder: "5s" }), element("label", {}, "File", file)),
  element("label", {}, "Scans: TOML, CSV or VEX", text),
  element("div", { class: "actions" }, element("button", { name: "check" }, "Check"), element("button", { name: "put", class: "main" }, "Put")), result);
  return section("put-title", "Put a schedule", form);
}
