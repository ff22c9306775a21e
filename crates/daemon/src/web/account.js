// The account of a scan over its time: what was lost when, and how full the ring was.

import { bytes, count, element, say, svg } from "./dom.js";

const HEIGHT = 60;

/** The share of the scan, 0 to 1, at a frame of a stream. */
const placeOf = (account, index) => {
  const [first, last] = [account.first?.index ?? 0, account.last?.index ?? 0];
  return last > first ? Math.max(0, Math.min(1, (index - first) / (last + 1 - first))) : 0;
};

/** The use of the ring as a line from 0 to the whole pool. */
function ring({ host }) {
  const blocks = host?.high_water_history?.blocks ?? [];
  if (!blocks.length || !host.pool_blocks) return [];
  const y = (used) => (HEIGHT - (HEIGHT * Math.min(used, host.pool_blocks)) / host.pool_blocks).toFixed(1);
  const points = blocks.map((used, at) => `${((1000 * at) / blocks.length).toFixed(1)},${y(used)} ${((1000 * (at + 1)) / blocks.length).toFixed(1)},${y(used)}`);
  return [svg("polyline", { points: points.join(" "), class: "ring" })];
}

function gaps(account) {
  return account.gaps.map((gap) => {
    const x = 1000 * placeOf(account, gap.first);
    const width = Math.max(2, 1000 * placeOf(account, gap.first + gap.count) - x);
    return svg("rect", { x: Math.min(x, 998).toFixed(1), y: 0, width: width.toFixed(1), height: HEIGHT, class: "lost" },
      svg("title", {}, `${count(gap.count)} frames ${gap.cause}, from frame ${gap.first}`));
  });
}

/** The longest write of each member in milliseconds. */
const writes = (host) => (host?.members ?? []).map((it) => `${it.path} ${(it.longest_write_ns / 1e6).toFixed(1)} ms`).join(", ");

/** One stream of the scan. */
function stream(name, account) {
  const { terms, host } = account;
  const seconds = account.first?.time && account.last?.time ? (Date.parse(account.last.time) - Date.parse(account.first.time)) / 1000 : null;
  const losses = ["missing", "overrun", "damaged", "late"].filter((term) => terms[term]).map((term) => `${count(terms[term])} ${term}`);
  const parts = [
    `${name}: ${losses.length ? losses.join(", ") : "nothing lost"} of ${count(terms.expected)} frames`,
    account.gaps_unlisted ? `${count(account.gaps_unlisted)} more gaps are not listed` : "",
    seconds === null ? "" : `${seconds.toFixed(1)} s`,
    host ? `ring at most ${host.high_water} of ${host.pool_blocks} blocks` : "",
    host?.members.length ? `longest write ${writes(host)}` : "",
  ];
  const text = parts.filter(Boolean).join("; ");
  const picture = svg("svg", { class: "account", role: "img", viewBox: `0 0 1000 ${HEIGHT}`, preserveAspectRatio: "none", "aria-label": text }, ...ring(account), ...gaps(account));
  return element("div", { class: "stream" }, element("p", { class: losses.length ? "bad" : "" }, text), picture);
}

/** A section with the account of a scan, its streams one below the other, and its files. */
export function accountOf(name, scan, files) {
  const base = `/api/v1/scans/${encodeURIComponent(name)}/files`;
  const links = (files ?? []).map((it) => element("li", {}, element("a", { href: `${base}/${encodeURIComponent(it.name)}`, download: "" }, it.name), ` ${bytes(it.bytes)}`));
  const streams = scan.manifest.streams.map((it, at) => (scan.accounts[at] ? stream(it.name, scan.accounts[at]) : element("p", {}, `${it.name}: no account`)));
  const title = element("h2", { id: "account-title", tabindex: "-1" });
  say(title, `${name}: ${scan.headline ?? "no account yet"}`);
  return element("section", { "aria-labelledby": "account-title", id: "account" }, title,
    element("p", { class: "soft" }, "Red: lost frames, by their place in the stream. The line: the fullest that the ring was, from empty to full."),
    ...streams, links.length ? element("p", {}, "Files, as fullbore cat writes them:") : "", element("ul", { class: "plain", id: "files" }, ...links));
}
