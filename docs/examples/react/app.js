// The same with React: a hook for the line, and waitingFetch for requests.
import { createElement as h, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { waitingFetch, onWait } from "/.well-known/vestibule/client.js";

// useLine returns the state of the line, null while nothing waits.
export function useLine() {
  const [state, setState] = useState(null);
  useEffect(() => onWait(setState), []);
  return state;
}

function Line({ state }) {
  return h("p", { id: "line", role: "status" },
    state && "Waiting room: " + state.state,
    state && !state.counting && state.peopleAhead >= 0 && ", " + state.peopleAhead + " people ahead",
    state && state.waitTimeKnown && ", about " + Math.ceil(state.waitTimeSeconds / 60) + " min");
}

function Stock() {
  const line = useLine();
  const [stock, setStock] = useState(null);
  useEffect(() => {
    const stop = new AbortController(); // a component that goes away waits no more
    waitingFetch("/api/stock", { signal: stop.signal })
      .then((response) => response.json())
      .then((json) => setStock(json.left), (error) => { if (error.name !== "AbortError") throw error; });
    return () => stop.abort();
  }, []);
  return h("main", null, h("h1", null, "Tickets"), h(Line, { state: line }), h("p", { id: "result" }, stock === null ? "" : stock + " left"));
}

createRoot(document.getElementById("root")).render(h(Stock));
