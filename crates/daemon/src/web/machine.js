// The page Machine: the settings of the host, whether it sustains what is recorded, its cards and its clock.

import { call } from "./api.js";
import { bytes, count, element, keyed, rate, say, when } from "./dom.js";
import { findings, row, rules, section, table } from "./findings.js";

/** Time between two requests, in milliseconds. The daemon looks every 20 s. */
const EVERY = 10_000;

const VERDICTS = { "fits": "FITS", "fits-with-warnings": "FITS, WITH WARNINGS", "not-known": "NOT KNOWN", "does-not-fit": "DOES NOT FIT" };

const seconds = (value) => {
  const [unit, size] = [["s", 1], ["ms", 1e-3], ["µs", 1e-6]].find(([, size]) => Math.abs(value) >= size) ?? ["ns", 1e-9];
  return `${(value / size).toPrecision(3).replace("-", "−")} ${unit}`;
};

/** How many streams are planned. An endpoint of an input can be several. */
function streamsOf(planned) {
  const noun = planned.some((it) => it.includes("://")) ? "endpoint" : "stream";
  return `${count(planned.length)} ${noun}${planned.length === 1 ? "" : "s"}`;
}

function facts(...names) {
  const fields = Object.fromEntries(names.map((name) => [name, element("dd")]));
  const node = element("dl", { class: "facts" }, ...names.map((name) => element("div", {}, element("dt", {}, name), fields[name])));
  return { node, fields };
}

/** The page. */
export function machine() {
  const host = facts("Host", "Kernel", "Processor", "CPUs", "Memory", "Program");
  const clock = facts("Kernel says", "Reference", "Offset", "Largest error", "Leap seconds");
  const cards = element("tbody", { id: "cards" });
  const settings = findings();
  const verdict = element("p", { id: "verdict" });
  const plan = rules();
  const looked = element("p", { class: "soft", id: "looked" });
  let [timer, gone] = [null, false];

  const fillCard = (node, it) => {
    const number = (value) => (value === null ? "–" : count(value));
    const drops = (it.dropped_packets ?? 0) + (it.missed_packets ?? 0) + (it.error_packets ?? 0);
    node.className = drops ? "silent" : "";
    const speed = it.speed_mbit === null ? "–" : `${it.speed_mbit / 1000} Gbit/s`;
    const texts = [it.name, it.state ?? "–", speed, it.mtu === null ? "–" : String(it.mtu), it.driver ?? "–",
      number(it.received_packets), number(it.dropped_packets), number(it.missed_packets), number(it.error_packets)];
    texts.forEach((text, place) => say(node.children[place], text));
  };
  const show = (seen) => {
    const it = seen.environment;
    const values = [it.host, `${it.kernel}, ${it.architecture}`, it.cpu, String(it.cpus), bytes(it.memory), it.program];
    Object.values(host.fields).forEach((field, place) => say(field, values[place]));
    const { chrony } = seen.clock;
    const told = { true: "synchronised", false: "NOT synchronised", null: "nothing" }[seen.clock.synchronised];
    const times = [told, chrony ? `${chrony.reference}, stratum ${chrony.stratum}` : "chrony does not run here",
      chrony ? seconds(chrony.offset_s) : "–", chrony ? seconds(chrony.largest_error_s) : "–", seen.clock.leap_seconds];
    Object.values(clock.fields).forEach((field, place) => say(field, times[place]));
    clock.fields["Kernel says"].className = seen.clock.synchronised === false ? "bad" : "";
    keyed(cards, seen.cards, (card) => card.name, () => row(8), fillCard);
    settings.update(seen.doctor.findings);
    plan.node.hidden = !seen.plan;
    if (seen.plan) plan.update(seen.plan.findings);
    verdict.className = seen.plan?.verdict === "does-not-fit" ? "bad" : "";
    say(verdict, seen.plan ? `${VERDICTS[seen.plan.verdict] ?? seen.plan.verdict}: ${streamsOf(seen.planned)}, ${rate(Math.round(seen.plan.rate))}` : `No plan: ${seen.no_plan}`);
    say(looked, `Looked at ${when(seen.time)} UTC.`);
  };
  const load = async () => {
    try {
      const seen = await call("GET", "/api/v1/machine");
      if (!gone) show(seen);
    } catch (problem) {
      say(looked, problem.message);
    }
    if (!gone) timer = setTimeout(load, EVERY);
  };
  load();
  const page = [
    section("machine-title", "Machine", host.node, looked),
    section("clock-title", "Clock", clock.node),
    section("plan-title", "Whether it sustains what is recorded", verdict, plan.node),
    section("doctor-title", "Settings that cost frames", settings.node),
    section("cards-title", "Cards", table(cards, "Card", "State", "Speed", "MTU", "Driver", "Received", "Dropped", "Missed", "Errors")),
  ];
  const leave = () => {
    gone = true;
    clearTimeout(timer);
  };
  return { page, update: () => {}, leave };
}
