// A page outside the room whose API, below /api, is in the room.
import { waitingFetch, onWait } from "/.well-known/vestibule/client.js";

const $ = (id) => document.getElementById(id);

// Without onWait the module shows a small box of its own.
onWait((state) => {
  $("cancel").hidden = !state;
  $("line").textContent = state ? describe(state) : "";
});

function describe(state) {
  const texts = ["Waiting room: " + state.state];
  if (!state.counting && state.peopleAhead >= 0) texts.push(state.peopleAhead + " people ahead");
  if (state.waitTimeKnown) texts.push("about " + Math.ceil(state.waitTimeSeconds / 60) + " min"); // else 0 seconds means nothing
  return texts.join(", ");
}

$("order").onclick = async () => {
  const stop = new AbortController();
  $("cancel").onclick = () => stop.abort();
  try {
    // Sent once, then again after admission. The site receives it once.
    const response = await waitingFetch("/api/orders", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ tickets: 2 }),
      signal: stop.signal,
    });
    $("result").textContent = response.ok ? (await response.json()).message : "The shop answered " + response.status;
  } catch (error) {
    $("result").textContent = error.name + ": " + error.message;
  }
};
