// Findings of `fullbore doctor` and `fullbore plan` as tables, the worst first.

import { element, keyed, say } from "./dom.js";

const GRADES = ["problem", "advice", "unknown", "good"];
const CLASSES = { problem: "lost", advice: "silent", unknown: "", good: "" };
const STATES = ["broken", "not-known", "tight", "holds"];

export const head = (...names) => element("thead", {}, element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name))));

export const row = (count) => element("tr", {}, element("th", { scope: "row" }), ...Array.from({ length: count }, () => element("td")));

export const section = (id, title, ...children) =>
  element("section", { "aria-labelledby": id }, element("h2", { id }, title), ...children);

export const table = (body, ...names) => element("div", { class: "wide" }, element("table", {}, head(...names), body));

/** A list of findings of `doctor`. Good ones are shown too: what was looked at is worth knowing. */
export function findings() {
  const body = element("tbody", { class: "findings" });
  const update = (all) => {
    const sorted = [...all].sort((one, other) => GRADES.indexOf(one.grade) - GRADES.indexOf(other.grade));
    keyed(body, sorted, (it) => `${it.id}/${it.subject}/${it.found}`, () => row(4), (node, it) => {
      node.className = CLASSES[it.grade];
      const texts = [it.subject, it.grade, it.found, it.cost ?? "", it.command ?? ""];
      texts.forEach((text, place) => say(node.children[place], text));
    });
  };
  return { node: table(body, "Part", "Grade", "Found", "Cost", "Command"), update };
}

/** The rules of a plan. */
export function rules() {
  const body = element("tbody", { class: "rules" });
  const update = (all) => {
    const sorted = [...all].sort((one, other) => STATES.indexOf(one.state) - STATES.indexOf(other.state));
    keyed(body, sorted, (it) => `${it.id}/${it.subject}/${it.need?.text}`, () => row(5), (node, it) => {
      node.className = it.state !== "broken" ? "" : it.severity === "error" ? "lost" : "silent";
      const why = [it.because, it.advice].filter(Boolean).join("; ");
      const texts = [`${it.id} ${it.rule}`, it.subject, it.state.replace("-", " "), it.need?.text ?? "–", it.have?.text ?? "–", why];
      texts.forEach((text, place) => say(node.children[place], text));
    });
  };
  return { node: table(body, "Rule", "Part", "Result", "Needs", "Has", "Why"), update };
}
