// The page Scans: what is stored, its verdict, and what can be done with it.

import { accountOf } from "./account.js";
import { call } from "./api.js";
import { bytes, element, keyed, say, when } from "./dom.js";
import { jobList } from "./jobs.js";

const PAGE = 100;

/** The page. */
export function scans(tools) {
  const { act, confirm, role } = tools;
  const rows = element("tbody");
  const search = element("input", { type: "search", name: "prefix", autocomplete: "off" });
  const more = element("button", { type: "button", hidden: true, onclick: () => act(() => load(next)) }, "More");
  let shown = [];
  let next = null;

  const load = async (after) => {
    const query = new URLSearchParams({ prefix: search.value, limit: PAGE, after: after ?? "" });
    const told = await call("GET", `/api/v1/scans?${query}`);
    shown = after ? [...shown, ...told.scans] : told.scans;
    next = told.next;
    more.hidden = next === null;
    keyed(rows, shown, (it) => it.name, row, fill);
  };

  const row = (scan) => {
    const base = `/api/v1/scans/${encodeURIComponent(scan.name)}`;
    const verify = element("button", { type: "button", onclick: () => act(() => call("POST", `${base}/verify`)) }, "Verify");
    const account = element("button", { type: "button", class: "account", "aria-label": `Account of ${scan.name}`, onclick: () => act(() => detail(node.scan)) }, "Account");
    const protect = element("button", {
      type: "button",
      onclick: () => act(async () => {
        await call(node.scan.protected ? "DELETE" : "PUT", `${base}/protection`);
        await load();
      }),
    });
    const remove = element("button", {
      type: "button", class: "danger",
      onclick: async () => {
        if (await confirm(`Remove ${scan.name} for good?`, "Remove")) {
          act(async () => {
            await call("DELETE", base);
            await load();
          });
        }
      },
    }, "Remove");
    const allowed = [role === "viewer" ? "" : verify, ...(role === "admin" ? [protect, remove] : [])];
    const cells = Array.from({ length: 5 }, () => element("td"));
    const node = element("tr", {}, element("th", { scope: "row", class: "left" }), ...cells, element("td", {}, element("a", { href: `#stream/scan/${encodeURIComponent(scan.name)}` }, "Spectrum"), " ", ...allowed, " ", account));
    node.protect = protect;
    node.remover = remove;
    return node;
  };

  const fill = (node, scan) => {
    node.scan = scan;
    const [name, state, start, length, size, verdict] = node.children;
    node.className = scan.complete === false || scan.problem ? "lost" : "";
    say(name, scan.name);
    say(state, scan.state + (scan.protected ? ", protected" : ""));
    say(start, scan.start ? when(scan.start) : "–");
    say(length, scan.duration_ns === null ? "–" : `${(scan.duration_ns / 1e9).toFixed(1)} s`);
    say(size, bytes(scan.bytes));
    say(verdict, scan.problem ?? scan.headline ?? scan.verdict ?? "–");
    say(node.protect, scan.protected ? "Unprotect" : "Protect");
    node.remover.disabled = scan.protected || scan.state === "recording";
  };

  const below = element("div");
  /** Shows the account of a scan below the list. */
  const detail = async (scan) => {
    const base = `/api/v1/scans/${encodeURIComponent(scan.name)}`;
    const told = await call("GET", base);
    // A scan that is being recorded, or lacks blocks, has no files.
    const files = await call("GET", `${base}/files`).catch(() => []);
    below.replaceChildren(accountOf(scan.name, told, files));
    below.querySelector("h2").focus();
  };
  const jobs = jobList(tools, "verify", "rebuild");
  const form = element("form", {
    class: "actions",
    onsubmit: (event) => {
      event.preventDefault();
      act(() => load());
    },
  }, element("label", {}, "Name begins with", search), element("button", {}, "Search"));
  const names = ["Scan", "State", "Start (UTC)", "Length", "Size", "Account", ""];
  const heading = element("thead", {}, element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name))));
  const page = [
    element("section", { "aria-labelledby": "scans-title" },
      element("h2", { id: "scans-title" }, "Scans"), form,
      element("div", { class: "wide" }, element("table", {}, heading, rows)), more),
    below,
    element("section", { "aria-labelledby": "jobs-title" }, element("h2", { id: "jobs-title" }, "Jobs"), jobs.list),
  ];
  act(() => load());

  const update = (status) => {
    jobs.update(status);
  };
  return { page, update };
}
