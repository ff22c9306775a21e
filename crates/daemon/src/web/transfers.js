// Transfers with other sites, on the page Now: those that run, wait or failed.

import { bytes, element, keyed, rate, say, time } from "./dom.js";

const HEADINGS = ["Scan", "Site", "State", "Done", "Of", "Rate", "Left", "Why"];

/** The section. It is hidden while there is nothing to show. */
export function transfers() {
  const rows = element("tbody");
  const problems = element("ul", { class: "plain" });
  const headings = HEADINGS.map((name) => element("th", { scope: "col" }, name));
  const page = element("section", { "aria-labelledby": "transfers-title" },
    element("h2", { id: "transfers-title" }, "Transfers"),
    element("div", { class: "wide" }, element("table", {}, element("thead", {}, element("tr", {}, ...headings)), rows)),
    problems);
  const update = ({ queue, receive, problems: wrong }) => {
    const shown = [...(receive?.open ?? []).map(ofListener), ...queue.map(ofQueue)];
    const told = [...wrong, ...(receive?.problem ? [`the listener has ended: ${receive.problem}`] : [])];
    keyed(rows, shown, (it) => it.key, row, fill);
    keyed(problems, told, (it) => it, () => element("li", { class: "bad" }), say);
    problems.hidden = told.length === 0;
    page.hidden = shown.length + told.length === 0;
  };
  return { page, update };
}

const ofListener = (it) => ({
  ...it, key: `${it.peer}/${it.scan}`, site: it.peer, state: it.fetched ? "is fetched" : "is received", why: it.reason,
});

const ofQueue = (it) => ({
  ...it, key: it.id, site: it.to, why: it.reason ?? (it.state === "failed" ? it.last_error : null),
});

function row() {
  return element("tr", {}, element("th", { scope: "row" }), ...HEADINGS.slice(1).map(() => element("td")));
}

function fill(node, it) {
  const values = [
    it.scan, it.site, it.state, bytes(it.done_bytes), bytes(it.bytes), it.rate ? rate(it.rate) : "–",
    time(it.eta_seconds), it.why ?? "",
  ];
  values.forEach((value, place) => say(node.children[place], value));
  node.className = it.state === "failed" ? "bad" : "";
}
