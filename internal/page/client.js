// Client for pages and apps whose requests go through a waiting room. docs/APPS.md documents it.
//
//     import { waitingFetch, onWait } from "/.well-known/vestibule/client.js";

const own = "/.well-known/vestibule/", ticketHeader = "Vestibule-Ticket", send = globalThis.fetch.bind(globalThis);
const locks = globalThis.document && globalThis.navigator && navigator.locks;
const hosts = new Map(), listeners = new Set(), waits = new Map(); // waits: line -> newest state, the newest line last

// WaitingRoomError is the rejection of a request that waiting cannot deliver. state is the room's newest answer.
export class WaitingRoomError extends Error {
	constructor(message, state) {
		super(message);
		this.name = "WaitingRoomError";
		this.state = state;
	}
}

// waitingFetch is fetch, but a request that is answered by a waiting room waits in the queue and is sent again after
// admission. The site receives it at most once: only a request that the room itself answered is repeated.
export async function waitingFetch(input, init) {
	const request = new Request(input, init);
	if (!/^https?:/.test(request.url) || request.mode === "no-cors") return send(request);
	const host = hostOf(new URL(request.url).origin, request);
	for (;;) {
		// The edge holds a request of a visitor whose turn is near, without an answer. So a poll goes first, to get a state to show.
		if (host.waited) await admission(host, request.url, request, null);
		const response = await inTurn(host, request);
		if (!response) continue;
		if (!isWaiting(response)) return response;
		const state = await read(response);
		if (response.redirected && request.method !== "GET" && request.method !== "HEAD")
			throw new WaitingRoomError("The site redirected this " + request.method + " into a waiting room. It is not sent again, as the site has seen it.", state);
		await admission(hostOf(new URL(response.url).origin, request), response.url, request, state);
	}
}

// onWait calls callback with the state of the queue whenever it changes, and with null when nothing waits. Without a
// callback the module shows a small box. onWait returns a function that removes the callback.
export function onWait(callback) {
	listeners.add(callback);
	if (waits.size) notify(callback);
	show();
	return function () { listeners.delete(callback); show() };
}

// Hosts and tickets. A request without cookies carries the ticket in a header; the tickets live as long as the tab.
function hostOf(origin, request) {
	let host = hosts.get(origin);
	if (!host) {
		host = { origin, lines: new Map(), tickets: {}, old: [], waited: false, byHeader: false, known: false, first: null };
		try { Object.assign(host, JSON.parse(sessionStorage.getItem("vestibule " + origin))) } catch (e) {} // no storage: the ticket ends with the page
		host.byHeader = Object.keys(host.tickets).length > 0;
		hosts.set(origin, host);
	}
	const sendsCookies = request.credentials === "include" || request.credentials === "same-origin" && globalThis.location && location.origin === origin;
	host.byHeader = host.byHeader || !sendsCookies;
	return host;
}
function keep(host) {
	try { sessionStorage.setItem("vestibule " + host.origin, JSON.stringify({ tickets: host.tickets, old: host.old, waited: host.waited })) } catch (e) {} // as above
}

// ask sends a request with the tickets of its host and keeps those of the answer.
async function ask(host, request) {
	if (host.byHeader) request.headers.set(ticketHeader, Object.entries(host.tickets).map(function (t) { return t.join("=") }).join(", ") || "new");
	const response = await send(request), brought = host.byHeader && response.headers.get(ticketHeader);
	if (brought) {
		brought.split(",").forEach(function (pair) {
			const at = pair.indexOf("="), name = pair.slice(0, at).trim(), ticket = pair.slice(at + 1).trim();
			if (host.old.includes(ticket) || host.tickets[name] === ticket) return; // some cache has replayed an answer
			if (host.tickets[name]) host.old = host.old.concat(host.tickets[name]).slice(-20);
			host.tickets[name] = ticket;
		});
		keep(host);
	}
	return response;
}
function isWaiting(response) { return response.headers.get("Vestibule-Decision") === "wait" }
async function read(response) {
	try { return (await response.json()).vestibule || null } catch (e) { return null } // a waiting page in HTML or plain text
}

// inTurn sends the first request to a host before all others. Its answer brings the ticket; without one every request would
// join the queue as another visitor. The others follow after two seconds in any case. It returns nothing if the first has to wait.
async function inTurn(host, request) {
	async function go() {
		const response = await ask(host, request.clone());
		if (isWaiting(response)) host.waited = true;
		return response;
	}
	if (host.known) return go();
	if (!host.first) {
		const answer = go();
		host.first = answer.then(function () { return host.known = true }, function () { host.first = null });
		return answer;
	}
	await orAborted(Promise.race([host.first, sleep(2)]), request.signal);
	if (host.waited) return null;
	return host.first ? go() : inTurn(host, request);
}

// admission resolves when the visitor is admitted. Requests for one room share one line.
async function admission(host, url, request, state) {
	if (!state) state = await poll(host, url, request.credentials, request.signal, "now");
	host.waited = state.state !== "entering";
	keep(host);
	if (!host.waited) return;
	let line = host.lines.get(state.room);
	if (!line) {
		line = { host, url, credentials: request.credentials, requests: 0, cut: new AbortController() };
		host.lines.set(state.room, line);
		const room = state.room;
		line.over = wait(line, state).finally(function () {
			if (host.lines.get(room) === line) host.lines.delete(room);
			waits.delete(line);
			notify();
		});
		line.over.catch(function () {}); // each request gets its own rejection
	}
	const over = line.over;
	line.requests++;
	try { await orAborted(over, request.signal) } finally {
		if (!--line.requests) {
			if (host.lines.get(state.room) === line) host.lines.delete(state.room);
			line.cut.abort();
		}
	}
}

// poll asks for the state of the queue. A poll never reaches the site. how is "now" if the edge must not hold it until
// the turn, because no current state is shown yet.
async function poll(host, url, credentials, signal, how) {
	const cut = new AbortController(), stop = function () { cut.abort() }, patience = setTimeout(stop, 45000);
	if (signal.aborted) stop();
	signal.addEventListener("abort", stop);
	try {
		const response = await ask(host, new Request(url, {
			credentials, cache: "no-store", redirect: "manual", signal: cut.signal, headers: { Accept: "application/json", "Vestibule-Poll": how },
		}));
		if (isWaiting(response)) {
			const state = await read(response);
			if (state) return state;
		} else if (response.status < 500 && response.status !== 429) return { state: "entering" }; // the room is gone
		throw Object.assign(new Error("status " + response.status), { retryAfter: +response.headers.get("Retry-After") || 0 });
	} finally {
		clearTimeout(patience);
		signal.removeEventListener("abort", stop);
	}
}

// wait polls at the room's interval until the visitor is admitted or no request needs the line any more.
async function wait(line, state) {
	const host = line.host, signal = line.cut.signal;
	let fails = 0, asked = 0, how = "now", was = state.state === "closed" ? "closed" : state.pausedBy || "", source, lead = false, wake = function () {};
	function leads() { return locks ? lead : !globalThis.document || document.visibilityState === "visible" } // insecure pages have no locks
	function within(seconds) { setTimeout(function () { wake() }, seconds * 1000) }
	// The event stream ends a pause when the turn is near. Only pages of the host itself may read it.
	function listen() {
		if (source || !leads() || host.byHeader || !globalThis.EventSource || location.origin !== host.origin) return;
		source = new EventSource(own + "events?room=" + encodeURIComponent(state.room));
		source.onmessage = function (e) {
			if (channel) channel.postMessage([state.room, e.data]);
			const n = JSON.parse(e.data), is = n.closed ? "closed" : n.pausedBy || "";
			// Polls are held near the turn, but not before a start.
			const near = !is && Date.parse(state.place || state.joinedAt) <= Math.max(n.cutoff, state.state === "before" ? 0 : n.park);
			if (was === "closed" ? !is : was !== is) within(Math.random() * 1.5); // the line was closed or paused, or goes on
			else if (near && Date.now() - asked > 2000) within(.05 + Math.random() * .45);
			was = is;
		};
		source.addEventListener("over", function (e) {
			source.close();
			if (e.data === "ask") within(Math.random() * 3);
		});
	}
	// away removes the visitor from the count of waiting visitors at once. The place is kept.
	function away() {
		if (!host.byHeader && globalThis.navigator && navigator.sendBeacon && location.origin === host.origin)
			navigator.sendBeacon(own + "away?room=" + encodeURIComponent(state.room) + "&answer=" + state.answer);
	}
	function online() { wake() }
	if (globalThis.addEventListener) {
		addEventListener("pagehide", away);
		addEventListener("online", online);
	}
	// One tab of a browser has a stream and polls that are held, as over HTTP/1.1 it has six connections to a site. The
	// waiting page shares the lock and the messages.
	const channel = globalThis.BroadcastChannel && globalThis.document ? new BroadcastChannel("vestibule") : null, over = new AbortController();
	let letGo = function () {};
	if (locks) locks.request("vestibule", { signal: over.signal }, function () {
		lead = true;
		listen();
		return new Promise(function (done) { letGo = done });
	}).catch(function () {
		lead = false; // another tab took it, or the line is over
		if (source) source.close();
		source = null;
	});
	try {
		while (!signal.aborted) {
			if (state.state === "entering") {
				host.waited = false;
				return keep(host);
			}
			if (state.state === "reload") { // no ticket came back: the cookie is blocked, or the ticket is void
				host.byHeader = host.byHeader || state.cookies === false;
				host.tickets = {};
				host.waited = host.known = false;
				keep(host);
				host.first = null;
				await sleep(1 + Math.random());
				return;
			}
			if (!(state.retryAfterSeconds > 0)) throw new WaitingRoomError("The waiting room lets nobody in (" + state.state + ").", state);
			waits.delete(line);
			waits.set(line, state);
			notify();
			listen();
			await new Promise(function (done) {
				const timer = setTimeout(done, state.retryAfterSeconds * 1000);
				wake = function () { clearTimeout(timer); done() };
				signal.addEventListener("abort", wake, { once: true });
			});
			if (signal.aborted) return away();
			asked = Date.now();
			try {
				state = await poll(host, line.url, line.credentials, signal, leads() ? how : "now");
				fails = 0;
				how = state.counting ? "now" : "1";
			} catch (e) {
				if (signal.aborted) return away();
				how = "now";
				const pause = Math.max(Math.min(10, Math.pow(2, ++fails)), e.retryAfter || 0) * (.75 + Math.random() / 2);
				state = Object.assign({}, state, { state: fails > 1 ? "offline" : state.state, retryAfterSeconds: pause });
			}
		}
	} finally {
		if (source) source.close();
		if (channel) channel.close();
		over.abort();
		letGo();
		if (globalThis.removeEventListener) {
			removeEventListener("pagehide", away);
			removeEventListener("online", online);
		}
	}
}

function sleep(seconds) { return new Promise(function (done) { setTimeout(done, seconds * 1000) }) }
function orAborted(promise, signal) {
	return new Promise(function (resolve, reject) {
		function stop() { reject(signal.reason) }
		if (signal.aborted) return stop();
		signal.addEventListener("abort", stop);
		promise.then(resolve, reject).finally(function () { signal.removeEventListener("abort", stop) });
	});
}
function newest() { return Array.from(waits.values()).pop() || null }
// notify calls one callback or all of them. An error in one stops neither the wait nor the others.
function notify(only) {
	const state = newest();
	(only ? [only] : Array.from(listeners)).forEach(function (callback) { queueMicrotask(function () { callback(state) }) });
	show();
}

// The box that is shown without a callback. Its styles are set by script, so that a strict content security policy allows it.
let box, words, spoken = {};
async function show() {
	const state = newest();
	if (!globalThis.document) return;
	if (!state || listeners.size) {
		if (box) box.remove();
		box = null;
		spoken = {};
		return;
	}
	const line = Array.from(waits.keys()).pop();
	if (!words || words.lang !== state.language) {
		try {
			const response = await send(line.host.origin + own + "words.json?lang=" + encodeURIComponent(state.language), { credentials: "omit" });
			words = Object.assign(await response.json(), { lang: state.language });
		} catch (e) { return } // the next answer tries again
		return show();
	}
	if (!box) build();
	box.lang = state.language;
	box.dir = /^(ar|fa|he)/.test(state.language) ? "rtl" : "ltr";
	const head = words[state.state] || words.queued, count = new Intl.NumberFormat(state.language);
	const counted = !state.counting && state.peopleAhead >= 0 && state.queueingMethod !== "random";
	const why = state.state === "paused" ? words["paused_" + state.pausedBy] : state.counting ? words.queued_counting : words[state.state + "_text"];
	const lines = [head];
	if (state.state === "queued" && counted) lines.push(words.ahead + ": " + count.format(state.peopleAhead));
	if (state.state === "queued" && !state.counting) lines.push(words.wait + ": " + duration(state));
	if (state.state !== "queued" || state.counting) lines.push(why);
	if (state.message) lines.push(state.message);
	const shown = box.firstChild;
	shown.replaceChildren.apply(shown, lines.filter(Boolean).map(function (text, i) {
		const p = document.createElement("p");
		p.textContent = text;
		p.style.margin = "0 0 .25rem";
		if (!i) p.style.fontWeight = "bold";
		return p;
	}));
	box.setAttribute("aria-label", head);
	// Screen readers announce a new state, and when half of the visitors in front are gone.
	if (spoken.state === state.state && spoken.counting === state.counting && !(state.peopleAhead < spoken.ahead / 2)) return;
	spoken = { state: state.state, ahead: state.peopleAhead, counting: state.counting };
	box.lastChild.textContent = lines.filter(Boolean).join(". ");
}
function build() {
	box = document.createElement("section");
	box.id = "vestibule-wait";
	Object.assign(box.style, {
		position: "fixed", insetBlockEnd: "1rem", insetInlineEnd: "1rem", maxWidth: "min(22rem, calc(100vw - 2rem))", boxSizing: "border-box", zIndex: 2147483647,
		padding: "1rem", border: "1px solid", borderRadius: ".5rem", font: "1rem/1.5 system-ui, sans-serif", colorScheme: "light dark", background: "Canvas", color: "CanvasText",
	});
	const say = document.createElement("p");
	say.setAttribute("role", "status");
	say.setAttribute("aria-live", "polite");
	Object.assign(say.style, { position: "absolute", width: "1px", height: "1px", margin: "-1px", overflow: "hidden", clipPath: "inset(50%)", whiteSpace: "nowrap" });
	box.append(document.createElement("div"), say);
	document.body.append(box);
}
// duration is the wait in words, or "" if it is unknown.
function duration(state) {
	if (!state.waitTimeKnown) return words.wait_unknown;
	const high = state.waitTimeHighSeconds, low = state.waitTimeLowSeconds, hours = high > 7200, size = hours ? 3600 : 60;
	if (high < 60) return words.wait_short;
	if (low >= 86400) return words.wait_long;
	const from = Math.max(1, Math.floor(low / size)), to = Math.max(1, Math.ceil(high / size)), count = new Intl.NumberFormat(state.language);
	const forms = words[hours ? "hour" : "minute"], form = forms[new Intl.PluralRules(state.language).select(to)] || forms.other;
	if (from >= to) return form.replace("{n}", count.format(to));
	return (form.includes("{n}") ? form : forms.other).replace("{n}", count.format(from) + "–\u2060" + count.format(to)); // no line break inside
}
