// The daemon's REST interface, and the events of its state.

let csrf = null;

/** An error that the daemon explained, or the lack of an answer. */
export class Problem extends Error {
  constructor(status, detail, advice) {
    super(advice ? `${detail}\n${advice}` : detail);
    this.status = status;
  }
}

/** One request; returns the document of the answer. */
export async function call(method, path, body) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (csrf && method !== "GET") headers["X-Fullbore-CSRF"] = csrf;
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Problem(0, "The daemon does not answer.");
  }
  const text = await answer.text();
  let told = null;
  try {
    told = text ? JSON.parse(text) : null;
  } catch {
    told = { detail: text };
  }
  if (!answer.ok) throw new Problem(answer.status, told?.detail ?? answer.statusText, told?.advice);
  return told;
}

/** Who the browser is logged in as; null if it is not. */
export async function session() {
  try {
    const told = await call("GET", "/api/v1/session");
    csrf = told.csrf;
    return told;
  } catch (problem) {
    if (problem.status === 401) return null;
    throw problem;
  }
}

export async function login(secret) {
  const told = await call("POST", "/api/v1/session", secret);
  csrf = told.csrf;
  return told;
}

export async function logout() {
  await call("DELETE", "/api/v1/session");
  csrf = null;
}

/**
 * Follows the state. `told` gets each state, `logged` new entries of the log, `lost` is called when there is none any more, and `refused` when the session
 * has ended. A lost connection is made again by this function, and not by the browser, which gives up after some errors.
 */
export function follow({ told, logged, lost, refused }) {
  let source = null;
  let timer = null;
  const again = async () => {
    source?.close();
    clearTimeout(timer);
    lost();
    try {
      if ((await session()) === null) return refused();
    } catch {
      timer = setTimeout(again, 1000);
      return;
    }
    open();
  };
  const watch = () => {
    clearTimeout(timer);
    timer = setTimeout(again, 4000);
  };
  const open = () => {
    source = new EventSource("/api/v1/events?log=info");
    source.addEventListener("state", (event) => {
      watch();
      told(JSON.parse(event.data));
    });
    source.addEventListener("log", (event) => logged(JSON.parse(event.data)));
    source.addEventListener("error", () => {
      source.close();
      clearTimeout(timer);
      timer = setTimeout(again, 500);
    });
    watch();
  };
  open();
  return () => {
    source?.close();
    clearTimeout(timer);
  };
}
