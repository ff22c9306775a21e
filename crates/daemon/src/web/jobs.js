// Jobs: what runs, how far it is, and what came of it.

import { call } from "./api.js";
import { element, keyed, rate, say, time } from "./dom.js";

const NAMES = { verify: "verify", rebuild: "rebuild", benchmark: "benchmark of", "self-test": "self test of" };

/** The result of a job in a few words. */
function outcome({ kind, result, exit_code: code }) {
  // The result of a command is at its client.
  if (!result) return code ? `ended with exit code ${code}` : "done";
  if (kind === "verify") return result.good ? "intact" : "NOT INTACT";
  if (kind === "rebuild") return result.left.length ? `NOT WHOLE: ${result.left.length} chunks are left` : "whole";
  if (kind === "self-test") {
    const failed = result.tests.filter((it) => it.outcome === "fail").map((it) => `${it.number} ${it.title}`);
    return result.passed ? `passed${result.unknown ? `, ${result.unknown} not known` : ""}` : `FAILED: ${failed.join(", ")}`;
  }
  const long = result.continuous;
  return long ? `written at ${rate(long.write.rate)}, longest write ${long.stalls.longest_ms.toFixed(1)} ms` : "done";
}

/** A list of jobs of some kinds, which are cancelled with a button. */
export function jobList({ act, role }, ...kinds) {
  const list = element("ul", { class: "plain" });
  const results = new Map();
  const make = () => {
    const text = element("span");
    const cancel = element("button", { type: "button" }, "Cancel");
    return Object.assign(element("li", {}, text, " ", cancel), { text, cancel });
  };
  const fill = (node, it, now) => {
    if (it.state === "done" && !results.has(it.id)) {
      results.set(it.id, "");
      call("GET", `/api/v1/jobs/${it.id}`).then((whole) => results.set(it.id, outcome(whole)), () => results.delete(it.id));
    }
    const share = it.total_bytes ? `${Math.floor((100 * it.done_bytes) / it.total_bytes)} %` : time((now - Date.parse(it.begun)) / 1000);
    const state = it.state === "running" ? share : it.problem ? `${it.state}: ${it.problem}` : results.get(it.id) || it.state;
    say(node.text, `${NAMES[it.kind] ?? it.kind} ${it.scan ?? it.member ?? ""}: ${state}`);
    say(node.cancel, `Cancel ${it.kind}`);
    node.cancel.hidden = it.state !== "running" || role === "viewer";
    node.cancel.onclick = () => act(() => call("DELETE", `/api/v1/jobs/${it.id}`));
  };
  const update = (status) => {
    const wanted = status.jobs.filter((it) => kinds.includes(it.kind));
    for (const id of results.keys()) if (!status.jobs.some((it) => it.id === id)) results.delete(id);
    keyed(list, wanted, (it) => it.id, make, (node, it) => fill(node, it, Date.parse(status.time)));
    return wanted;
  };
  return { list, update };
}
