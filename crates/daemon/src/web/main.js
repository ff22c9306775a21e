// Logs in, follows the state, and shows the page that the address names.

import { follow, login, logout, session } from "./api.js";
import { disks } from "./disks.js";
import { element, say } from "./dom.js";
import { log } from "./log.js";
import { machine } from "./machine.js";
import { now } from "./now.js";
import { schedule } from "./schedule.js";
import { scans } from "./scans.js";
import { stream } from "./stream.js";

const by = (id) => document.getElementById(id);
const PAGES = { now, stream, scans, schedule, disks, log, machine };
const TITLES = { stream: "Stream", scans: "Scans", schedule: "Schedule", disks: "Disks", log: "Log", machine: "Machine" };

let who = null;
let page = null;
let newest = null;
let stop = null;
let hide = null;
/** True while the daemon does not answer. */
let away = false;

/** Runs an action, and shows why it failed. */
async function act(action) {
  try {
    await action();
    say(by("problem"), "");
  } catch (problem) {
    say(by("problem"), problem.message);
    clearTimeout(hide);
    hide = setTimeout(() => say(by("problem"), ""), 20_000);
    if (problem.status === 401) ask();
  }
}

/** Asks once before what cannot be undone. */
function confirm(text, yes) {
  say(by("confirm-text"), text);
  say(by("confirm-yes"), yes);
  const dialog = by("confirm");
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

function show() {
  if (!who) return;
  const [asked] = location.hash.slice(1).split("/");
  const name = Object.hasOwn(PAGES, asked) ? asked : "now";
  page?.leave?.();
  page = PAGES[name]({ act, confirm, role: who.role });
  by("page").replaceChildren(...page.page);
  for (const link of Object.keys(PAGES)) {
    by(`to-${link}`).toggleAttribute("aria-current", link === name);
    if (link === name) by(`to-${link}`).setAttribute("aria-current", "page");
  }
  if (name in TITLES) document.title = `${TITLES[name]} – fullbore`;
  if (newest) page.update(newest);
}

function connected(is) {
  say(by("connection"), is ? "connected" : "No connection: the daemon does not answer. Recordings go on.");
  by("connection").className = is ? "" : "lost";
}

function enter(session) {
  who = session;
  say(by("who"), `${who.name}, ${who.role}`);
  by("logout").hidden = false;
  show();
  stop?.();
  stop = follow({
    told: (status) => {
      newest = status;
      connected(true);
      if (away) page.again?.();
      away = false;
      say(by("host"), status.host);
      say(by("to-log"), status.open_alerts ? `Log (${status.open_alerts})` : "Log");
      page.update(status);
    },
    logged: (entries) => page?.logged?.(entries),
    lost: () => {
      away = true;
      connected(false);
    },
    refused: ask,
  });
}

/** Asks for a token. */
function ask() {
  stop?.();
  page?.leave?.();
  page = null;
  who = null;
  say(by("who"), "");
  say(by("connection"), "");
  by("logout").hidden = true;
  const token = element("input", { type: "password", name: "token", required: true, autocomplete: "current-password" });
  const form = element("form", {
    class: "row",
    onsubmit: (event) => {
      event.preventDefault();
      act(async () => enter(await login({ token: token.value })));
    },
  }, element("label", {}, "Token", token), element("button", { class: "main" }, "Log in"));
  by("page").replaceChildren(element("section", { "aria-labelledby": "login-title" },
    element("h2", { id: "login-title" }, "Log in"),
    element("p", {}, "Open the link that the daemon printed when it started, or give a token."), form));
  token.focus();
}

async function start() {
  const [, code, first] = location.hash.match(/^#login=([0-9a-f]+)(?:\/(\w+))?$/) ?? [];
  if (code) {
    // The code works once. It does not stay in the address or in the history.
    history.replaceState(null, "", `/#${first ?? "now"}`);
    await act(async () => enter(await login({ code })));
    if (who) return;
  }
  const known = await session().catch(() => null);
  if (known) enter(known);
  else if (!who) ask();
}

addEventListener("hashchange", () => (location.hash.startsWith("#login=") ? start() : show()));
document.querySelector(".skip").addEventListener("click", (event) => {
  // The address names the page, so it does not change.
  event.preventDefault();
  by("page").focus();
});
by("logout").addEventListener("click", () => act(async () => {
  await logout();
  ask();
}));
start();
