// The page Disks: members, drives and their health, how long writes took, benchmarks, and work that loads a disk.

import { call } from "./api.js";
import { bytes, element, keyed, rate, say, when } from "./dom.js";
import { findings, row, section, table } from "./findings.js";
import { jobList } from "./jobs.js";
import { curves, palette } from "./plot.js";

/** Time between two requests, in milliseconds. The daemon looks every 20 s. */
const EVERY = 5000;

const COLOURS = ["accent", "wait", "good", "bad", "soft"];

/** The page. */
export function disks(tools) {
  const { act, confirm, role } = tools;
  const members = element("tbody", { id: "members" });
  const drives = element("tbody", { id: "drives" });
  const benchmarks = element("tbody", { id: "benchmarks" });
  const settings = findings();
  const canvas = element("canvas", { id: "writes", role: "img" });
  const told = element("p", { class: "soft", id: "writes-text" });
  const legend = element("p", { id: "legend" });
  const jobs = jobList(tools, "benchmark", "self-test", "rebuild");
  const looked = element("p", { class: "soft", id: "looked" });
  let [seen, timer, gone, spaces, ended] = [null, null, false, [], ""];

  const start = async (kind, member) => {
    const what = kind === "benchmark" ? "Benchmark" : "Test";
    const text = `${what} ${member}? It loads the disk for about a minute, and ends when a recording begins.`;
    if (await confirm(text, what)) act(() => call("POST", "/api/v1/jobs", { kind, member }));
  };
  const memberRow = (it) => {
    const node = row(8);
    const used = element("meter", { min: 0, max: 1, low: 0.8, high: 0.95, optimum: 0 });
    node.children[3].append(used);
    const button = (kind, name) => element("button", { type: "button", "aria-label": `${name} ${it.path}`, onclick: () => start(kind, it.path) }, name);
    if (role === "admin") node.children[8].append(button("benchmark", "Benchmark"), button("self-test", "Self test"));
    return node;
  };
  const fillMember = (node, it) => {
    const [path, free, total, used, system, device, below, state] = node.children;
    const space = spaces.find((one) => one.path === it.path);
    const problem = it.problem ?? space?.problem;
    node.className = problem ? "lost" : "";
    say(path, it.path);
    say(free, bytes(space?.free_bytes));
    say(total, bytes(space?.total_bytes));
    const share = space?.total_bytes ? 1 - (space.free_bytes ?? 0) / space.total_bytes : 0;
    used.firstChild.value = share;
    used.firstChild.setAttribute("aria-label", `${Math.round(100 * share)} % used`);
    say(system, it.file_system ?? "–");
    say(device, it.device ?? "–");
    say(below, it.drives.join(", ") || "–");
    say(state, problem ?? "good");
  };
  const driveRow = () => {
    const node = row(7);
    node.children[4].className = "wraps";
    return node;
  };
  const fillDrive = (node, it) => {
    node.className = { problem: "lost", advice: "silent" }[it.health.grade] ?? "";
    const heat = it.temperature_c === null ? "–" : `${it.temperature_c} °C${it.limit_c === null ? "" : ` of ${it.limit_c}`}`;
    const used = it.life_used_percent === null ? "–" : `${it.life_used_percent} %`;
    const hours = it.power_on_hours === null ? "–" : `${it.power_on_hours} h`;
    const kind = it.rotational === null ? "–" : it.rotational ? "hard disk" : "solid state";
    const texts = [it.name, it.model ?? "–", kind, it.health.grade, it.health.found, heat, used, hours];
    texts.forEach((text, place) => say(node.children[place], text));
  };
  const fillBenchmark = (node, it) => {
    const speed = (value) => (value === null ? "–" : rate(value));
    const longest = it.longest_write_ms === null ? "–" : `${it.longest_write_ms.toFixed(1)} ms`;
    const name = it.started.replace("T", " ").replace("Z", "") + (it.interrupted ? ", ended early" : "");
    const texts = [name, it.targets.join(", "), speed(it.write_rate), speed(it.read_rate), longest, speed(it.recommended_rate)];
    texts.forEach((text, place) => say(node.children[place], text));
  };
  const show = () => {
    if (!seen) return;
    keyed(members, seen.members, (it) => it.path, memberRow, fillMember);
    keyed(drives, seen.drives, (it) => it.name, driveRow, fillDrive);
    keyed(benchmarks, seen.benchmarks, (it) => it.id, () => row(5), fillBenchmark);
    say(looked, `Looked at ${when(seen.time)} UTC.`);
    draw(canvas, told, legend, seen);
  };
  const load = async () => {
    clearTimeout(timer);
    try {
      const [disks, machine] = await Promise.all([call("GET", "/api/v1/disks"), call("GET", "/api/v1/machine")]);
      if (gone) return;
      seen = disks;
      const parts = new Set([...seen.members.map((it) => it.path), ...seen.drives.map((it) => it.name)]);
      settings.update(machine.doctor.findings.filter((it) => parts.has(it.subject) || seen.drives.some((drive) => it.subject.startsWith(`${drive.name} `))));
      show();
    } catch (problem) {
      say(looked, problem.message);
    }
    if (!gone) timer = setTimeout(load, EVERY);
  };
  load();

  const rebuild = element("form", {
    class: "actions",
    onsubmit: (event) => {
      event.preventDefault();
      const scan = rebuild.querySelector("input").value.trim();
      act(() => call("POST", `/api/v1/scans/${encodeURIComponent(scan)}/rebuild`));
    },
  }, element("label", {}, "Scan with redundancy", element("input", { name: "rebuild", required: true, autocomplete: "off", spellcheck: "false" })),
  element("button", {}, "Rebuild"));
  const page = [
    section("disks-title", "Members", table(members, "Directory", "Free", "Of", "Used", "File system", "Device", "Drives", "State", ""), looked),
    section("drives-title", "Drives", table(drives, "Drive", "Model", "Kind", "Health", "Found", "Temperature", "Life used", "Power on"),
      element("p", { class: "soft" }, "Drives tell their health through smartctl or nvme, if one is installed and the daemon may ask.")),
    section("writes-title", "Longest write in each scan", canvas, legend, told),
    section("benchmarks-title", "Last benchmarks", table(benchmarks, "Began (UTC)", "Targets", "Written", "Read back", "Longest write", "Recommended")),
    section("work-title", "Jobs", role === "admin" ? rebuild : "", jobs.list),
    section("settings-title", "Settings of the disks", settings.node),
  ];
  const update = (status) => {
    spaces = status.members;
    const over = jobs.update(status).filter((it) => it.state !== "running").map((it) => it.id).join();
    if (over !== ended) {
      // A benchmark that has ended is in the history.
      ended = over;
      load();
    }
    show();
  };
  const leave = () => {
    gone = true;
    clearTimeout(timer);
  };
  return { page, update, leave };
}

/** A curve for each member over the newest scans, from 0 to the longest write. */
function draw(canvas, told, legend, { writes }) {
  const paths = [...new Set(writes.flatMap((it) => Object.keys(it.longest_write_ns)))];
  const most = Math.max(0, ...writes.flatMap((it) => Object.values(it.longest_write_ns))) / 1e6;
  const worst = writes.find((it) => Object.values(it.longest_write_ns).some((ns) => ns / 1e6 === most));
  canvas.hidden = writes.length < 2;
  say(told, writes.length ? `${writes.length} scans; the longest write took ${most.toFixed(1)} ms, in ${worst?.scan}.` : "No scan is sealed yet.");
  canvas.setAttribute("aria-label", told.textContent);
  if (canvas.hidden || !canvas.isConnected) return;
  const colour = (at) => COLOURS[at % COLOURS.length];
  keyed(legend, paths, (it) => it, () => element("span"), (node, it) => {
    node.className = `curve-${colour(paths.indexOf(it))}`;
    say(node, `■ ${it} `);
  });
  const lines = paths.map((path, at) => ({ values: writes.map((it) => (it.longest_write_ns[path] ?? 0) / 1e6), colour: colour(at) }));
  const axis = [{ place: 0, text: writes[0].scan }, { place: 1, text: writes.at(-1).scan }];
  if (palette().text) curves(canvas, { low: 0, high: Math.max(most * 1.1, 1), unit: "ms", curves: lines, axis, marker: null });
}
