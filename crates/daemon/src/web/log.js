// The page Log: alerts that last and their history, the log of the station, and for admins the audit log.

import { call } from "./api.js";
import { element, keyed, say, when } from "./dom.js";
import { row, section, table } from "./findings.js";

const PAGE = 100;
const LEVELS = ["info", "warning", "error"];
const CLASSES = { error: "lost", warning: "silent", info: "" };

/** The most entries on the page. */
const SHOWN = 1000;

/** The page. */
export function log(tools) {
  const { act, role } = tools;
  const open = element("tbody", { id: "open" });
  const ended = element("tbody", { id: "over" });
  const entries = element("tbody", { id: "entries" });
  const audit = element("tbody", { id: "audit" });
  const level = element("select", { name: "level", onchange: () => act(() => load()) }, ...LEVELS.map((it) => element("option", { value: it }, it)));
  const contains = element("input", { type: "search", name: "contains", autocomplete: "off" });
  const more = element("button", { type: "button", hidden: true, onclick: () => act(() => load(next)) }, "Older entries");
  const moreAudit = element("button", { type: "button", hidden: true, onclick: () => act(() => loadAudit(nextAudit)) }, "Older lines");
  let [shown, next, lines, nextAudit, alerts] = [[], null, [], null, -1];
  /** What is searched for, which differs from what is being typed. */
  let wanted = { level: LEVELS[0], contains: "" };

  const fill = (node, it) => {
    node.className = CLASSES[it.level];
    const [time, rank, text] = node.children;
    say(time, when(it.time));
    say(rank, it.level);
    say(text, it.text);
  };
  const show = () => keyed(entries, shown, (it) => it.number, () => textRow(2), fill);
  const load = async (before) => {
    if (!before) wanted = { level: level.value, contains: contains.value };
    const query = new URLSearchParams({ ...wanted, limit: PAGE });
    if (before) query.set("before", before);
    const told = await call("GET", `/api/v1/log?${query}`);
    shown = before ? [...shown, ...told.entries].slice(-SHOWN) : told.entries;
    next = told.next;
    more.hidden = next === null;
    show();
  };
  /** New entries, the oldest first. */
  const logged = (fresh) => {
    const newest = shown[0]?.number ?? 0;
    const found = fresh.filter((it) => it.number > newest && LEVELS.indexOf(it.level) >= LEVELS.indexOf(wanted.level) && it.text.includes(wanted.contains));
    shown = [...found.reverse(), ...shown].slice(0, SHOWN);
    show();
  };
  const loadAlerts = async () => {
    const told = await call("GET", "/api/v1/alerts");
    const fillAlert = (node, it) => {
      node.className = it.ended ? "" : "lost";
      const texts = [when(it.begun), it.ended ? when(it.ended) : "lasts", it.kind, it.text];
      texts.forEach((text, place) => say(node.children[place], text));
    };
    const key = (it) => `${it.begun}/${it.kind}/${it.subject}`;
    keyed(open, told.open, key, () => textRow(3), fillAlert);
    keyed(ended, told.ended, key, () => textRow(3), fillAlert);
  };
  const loadAudit = async (before) => {
    const query = new URLSearchParams({ limit: PAGE, ...(before ? { before } : {}) });
    const told = await call("GET", `/api/v1/audit?${query}`);
    lines = before ? [...lines, ...told.lines].slice(-SHOWN) : told.lines;
    nextAudit = told.next;
    moreAudit.hidden = nextAudit === null;
    keyed(audit, lines, (it) => `${it.time}/${it.path}`, () => row(4), (node, it) => {
      node.className = it.status >= 400 ? "silent" : "";
      const texts = [when(it.time), it.who ? `${it.who}, ${it.role}` : "nobody", it.method, it.path, String(it.status)];
      texts.forEach((text, place) => say(node.children[place], text));
    });
  };
  const form = element("form", {
    class: "actions",
    onsubmit: (event) => {
      event.preventDefault();
      act(() => load());
    },
  }, element("label", {}, "At least", level), element("label", {}, "Contains", contains), element("button", {}, "Search"));
  const page = [
    section("open-title", "Open alerts", table(open, "Since (UTC)", "Until", "Kind", "Problem")),
    section("log-title", "Log", form, table(entries, "Time (UTC)", "Level", "Entry"), more),
    section("over-title", "Alerts that are over", table(ended, "Since (UTC)", "Until", "Kind", "Problem")),
    role === "admin" ? section("audit-title", "Audit log",
      element("button", { type: "button", onclick: () => act(() => loadAudit()) }, "Show the newest lines"),
      table(audit, "Time (UTC)", "Who", "Method", "Path", "Status"), moreAudit) : "",
  ];
  act(() => load());
  if (role === "admin") act(() => loadAudit());
  const update = (status) => {
    if (status.open_alerts !== alerts) {
      alerts = status.open_alerts;
      act(loadAlerts);
    }
  };
  /** After a time without a connection: entries are missed, and those of a new daemon are numbered from 1. */
  const again = () => {
    alerts = -1;
    act(() => load());
  };
  return { page, update, logged, again };
}

/** A row whose last cell is text that wraps. */
function textRow(count) {
  const node = row(count);
  node.lastChild.className = "text";
  return node;
}
