(function () {
// The script stands at the end of the page, in the element still, before a meta element with which the page reloads by
// itself: where this script is kept from running or fails to start. With it, the page gets updates and does not reload
// before the turn has come, except once if a draw is announced.
// The state that the page was served with:
var $ = function (id) { return document.getElementById(id) };
var words = JSON.parse($("words").textContent), list = JSON.parse($("now").textContent), now = list.pop();
"{{fields}}".split(" ").forEach(function (name, i) { now[name] = list[i] });
var lang = now.language, vr = $("vr");
var count = new Intl.NumberFormat(lang), plural = new Intl.PluralRules(lang);
// stored survives a reload of this tab, if the browser keeps it.
var stored = {};
try { stored = JSON.parse(sessionStorage.vestibule) } catch (e) {} // nothing is stored yet, or storage is blocked
function store(key, value) {
	stored[key] = value;
	try { sessionStorage.vestibule = JSON.stringify(stored) } catch (e) {} // then the next page starts fresh
}
var short = { hour: "numeric", minute: "2-digit" }, long = Object.assign({ second: "2-digit" }, short);

// Words.
function unit(name, n, shown) {
	var forms = words[name], form = forms[plural.select(n)] || forms.other;
	if (shown && form.indexOf("{n}") < 0) form = forms.other;
	return form.replace("{n}", shown || count.format(n));
}
function span(s) {
	s = Math.max(0, Math.floor(s));
	if (s < 60) return unit("second", s);
	if (s < 3600) return unit("minute", Math.floor(s / 60));
	if (s >= 172800) return unit("day", Math.floor(s / 86400));
	var m = Math.floor(s % 3600 / 60);
	return unit("hour", Math.floor(s / 3600)) + (m && s < 36000 ? " " + unit("minute", m) : "");
}
function wait(s) {
	if (s.state == "next") return words.wait_now;
	var low = s.waitTimeLowSeconds, high = s.waitTimeHighSeconds, ranged = low < high;
	if (!s.waitTimeKnown) return words.wait_unknown;
	if (lots(s) && s.waitTimePercentileSeconds) return s.waitTimePercentileSeconds.map(function (t) {
		var size = t > 60 ? 60 : 5; // the precision of the estimate
		return span(Math.ceil(t / size) * size || 5);
	}).map(function (t, i, all) {
		return t == all[++i] ? "" : words.wait_share.replace("{n}", count.format(25 * i)) + " " + t + "\n";
	}).join("").trim();
	if (high < (ranged ? 60 : 45)) return words.wait_short;
	if (low >= 86400) return words.wait_long;
	var name = high > 7200 ? "hour" : "minute", size = high > 7200 ? 3600 : 60;
	if (!ranged) return unit(name, Math.round(low / size));
	low = Math.max(1, Math.floor(low / size));
	high = Math.ceil(high / size);
	return unit(name, high, low < high && count.format(low) + "–\u2060" + count.format(high)); // no line break inside
}
// lots reports whether the order is random. Then there is no position: only an answer shows whether the turn has come.
function lots(s) { return s.queueingMethod == "random" }
// at returns the place in the queue: the join time, unless the visitor was given another one.
function at(s) { return Date.parse(s.place || s.joinedAt) }
function clock(time, how) { return new Intl.DateTimeFormat(lang, how).format(new Date(time)) }
function put(id, text) { var e = $(id); if (e.textContent != text) e.textContent = text }

// Display. Times use the server's clock: skew is the difference to ours.
var skew = 0, state = "", done = 0, telling, told = {}; // told: what was announced last, by state; nothing of the page as it came
function show(s) {
	if (at(s) != at(now)) done = grew = 0; // another place
	now = s;
	if (s.state == "moment" || s.state == "blocked") return turn(s.state, words[s.state + "_text"]);
	skew = Date.now() - Date.parse(s.updatedAt);
	put("ahead", s.counting || s.peopleAhead < 0 ? "–" : count.format(s.peopleAhead));
	put("wait", wait(s));
	put("total", s.peopleWaiting < 0 ? "–" : count.format(s.peopleWaiting));
	put("kept", span(s.placeKeptSeconds));
	put("joined", clock(s.joinedAt, short));
	put("updated", clock(s.updatedAt, long));
	put("number", s.number);
	note(s);
	if (s.draw && $("proof")) drawn(s.draw, s.state == "before");
	// The expected time of the turn, in the zone of the browser.
	var w = s.waitTimeKnown && s.state == "queued" && !lots(s) && s.waitTimeSeconds, step = w > 1200 ? 300000 : 60000;
	$("turn").hidden = !(w >= 60 && w < 43200);
	put("clock", clock(Math.round((Date.parse(s.updatedAt) + w * 1000) / step) * step, short));
	if (s.lost) put("lost", s.lostText || "");
	var known = s.progressPercent >= 0;
	vr.dataset.order = s.queueingMethod;
	vr.dataset.bar = known ? done = Math.max(done, s.progressPercent) : "";
	if (known) $("bar").value = done;
	turn(s.state, words[s.state + (s.state == "paused" ? "_" + s.pausedBy : s.state != "queued" ? "_text" : s.counting ? "_counting" : s.waitTimeLonger ? "_longer" : lots(s) ? "_random" : "_text")]);
	tick();
}
// note shows the organiser's message, and the earlier ones that this page has shown.
function note(s) {
	var seen = (stored.seen || []).filter(function (x) { return x[0] == s.room }), last = seen[seen.length - 1];
	put("note", s.message);
	if (s.message && (!last || last[2] != s.message)) store("seen", seen = seen.concat([[s.room, s.updatedAt, s.message]]).slice(-9));
	if (s.message) seen = seen.slice(0, -1);
	$("past").hidden = !seen.length;
	put("seen", seen.map(function (x) { return clock(x[1], short) + " · " + x[2] }).join("\n"));
}
// drawn shows when a draw closes, its proof, and before the start the drawn place. Only pages of an event with a draw have
// these parts.
function drawn(d, stands) {
	var text = JSON.stringify(d.receipt || { commit: d.commit }), copy = $("copy"), place = $("place");
	put("proof", text);
	$("save").href = "data:application/json," + encodeURI(text);
	place.parentNode.hidden = !d.place || !stands;
	if (d.place) place.textContent = "≈\u00a0" + count.format(d.place) + "/" + count.format(d.entrants);
	$("closes").textContent = clock(d.closesAt, short);
	$("closes").parentNode.hidden = d.stage != "open";
	copy.hidden = !navigator.clipboard;
	copy.onclick = function () { navigator.clipboard.writeText(text) };
}
function turn(to, text) {
	state = vr.dataset.state = to;
	put("head", words[to]);
	put("text", now[to] || text); // of a draw
	document.title = (to == "queued" && numbered() ? "(" + count.format(now.peopleAhead) + ") " : "") + words[to];
	tell(to, text);
}
function tick() {
	var t = Date.now() - skew, start = Date.parse(now.startsAt);
	put("waited", span((t - Date.parse(now.joinedAt)) / 1000));
	if (start) put("starts", span((start - t) / 1000));
	// A stream sends a message every five seconds at least. The tab that had it may be closed.
	if (said && Date.now() - said > 12000) {
		hush();
		lost();
		if (leads()) { stream(); return turn("offline", words.offline_text) }
	}
	// It has started, and no stream reports positions.
	if (state == "before" && !said && Date.parse(now.updatedAt) < start && t > start + 1000) {
		fresh = true;
		within(Math.random() * 2);
		show(word = Object.assign({}, now, { state: "queued", counting: true, updatedAt: new Date(t).toISOString() }));
	}
}
// numbered reports whether the number of visitors in front is known.
function numbered() { return !now.counting && now.peopleAhead >= 0 && !lots(now) }
// tell makes screen readers announce important changes only: another state; half of the visitors in front gone; a
// longer wait. The line is announced again after five minutes.
function tell(to, text) {
	var ahead = numbered() ? now.peopleAhead : lots(now) && !now.counting ? 1 : Infinity, last = told[to], longer = now.waitTimeLonger;
	if (last && (to == telling || /queued|next/.test(to)) && Date.now() - last.at < 300000 &&
		!(to == "queued" && (ahead < last.ahead / 2 || longer && !last.longer))) return;
	if (telling) $("say").textContent = words[to] + ". " + (to != "queued" || now.counting ? text : (longer ? text + " " : "") +
		(numbered() ? words.ahead + ": " + count.format(ahead) + ". " : "") + words.wait + ": " + wait(now));
	telling = to;
	told[to] = { ahead: ahead, longer: longer, at: Date.now() };
}

// The turn has come.
var entering = false, kept = now.answer > 0, sound, ring = function (done) { done() };
function enter() {
	if (entering) return;
	entering = true;
	hush();
	letGo();
	if (channel) channel.postMessage([now.room]); // the others enter with the same ticket
	turn("entering", words.entering_text);
	if ($("notify").getAttribute("aria-pressed") == "true") {
		try {
			new Notification(words.entering, { body: location.host, tag: "vestibule" }).onclick = function () { window.focus() };
		} catch (e) {} // some browsers allow notifications only from service workers; title and sound remain
	}
	try { ring(reload) } catch (e) { reload() }
}
// blocked shows that the browser blocks cookies, and stops polling: every poll would be a
// new visitor. The page reloads slowly.
function blocked() {
	entering = true;
	hush();
	letGo();
	clearTimeout(timer);
	turn("blocked", words.blocked_text);
	setTimeout(reload, (now.state == "blocked" ? now.retryAfterSeconds : 60 + Math.random() * 30) * 1000);
}
// reload requests the page itself, and never repeats quickly.
function reload() {
	var last = stored.reload;
	store("reload", Date.now());
	setTimeout(get, Date.now() - last < 5000 ? 5000 : 0);
}
// get requests the address of this page by GET: location.reload would send a form again that this page answers. Browsers
// stay where only a fragment differs, so the page has another address before.
function get() {
	var to = location.href, bare = to.split("#")[0];
	if (to != bare) try {
		history.replaceState(null, "", bare + (bare.indexOf("?") < 0 ? "?" : "&"));
	} catch (e) { to = bare }
	location.replace(to);
}

// Updates. Only listen knows their transport: it calls heard with each, and missed if
// the site does not answer.
var loaded = Date.now(), answered = false, timer, due = 0, fails = 0, asking = null, again = false, source, said = 0, refused = 0, near = false, sent = 0, word = now, grew = 0, drew = 0, heights = [];
// fresh: no current state is shown yet, so the next poll is not held. broken: the stream was interrupted, with no message since.
var fresh = true, broken = false;
function listen() {
	later(now.counting ? 1 : now.retryAfterSeconds);
	try { claim(visible()) } catch (e) {} // polls are enough
}
function later(s) {
	clearTimeout(timer);
	due = 0;
	if (!(s > 0) || entering) return;
	// With a stream, polls only keep the place. Before a start each has its moment.
	if (!near && now.state != "before" && Date.now() - said < 12000) s = Math.max(s, 15 + Math.random() * 10);
	within(s);
}
// within makes the page poll after at most s seconds.
function within(s) {
	if (due && due < Date.now() + s * 1000) return;
	clearTimeout(timer);
	due = Date.now() + s * 1000;
	timer = setTimeout(function () {
		try { ask() } catch (e) { giveUp() }
	}, s * 1000);
}
// giveUp has the page reload, as without this script: polls of it do not work here.
function giveUp() { if (!entering) setTimeout(reload, 8000 + Math.random() * 4000) }
// Over HTTP/1.1 a browser has six connections to a site. So only one tab of all rooms has a stream and polls that are
// held. It passes the messages on. A visible tab takes this over from a hidden one.
var locks = navigator.locks, lead, letGo = function () {}, channel = window.BroadcastChannel && new BroadcastChannel("vestibule");
if (channel) channel.onmessage = function (e) {
	if (leads()) return;
	if (e.data[0] != now.room) overdue(); else if (e.data[1]) message(e.data[1]); else soon();
};
function leads() { return locks ? lead : visible() } // insecure pages have no locks
function visible() { return document.visibilityState == "visible" }
function claim(steal) {
	if (!locks || lead || entering) return stream();
	var mine = {};
	locks.request("vestibule", { steal: steal }, function () {
		if (entering) return;
		lead = mine;
		stream();
		return new Promise(function (done) { letGo = done });
	}).catch(function () {
		if (lead != mine) return;
		lead = null; // another tab took it
		hush();
		again = !!asking; // not held any more
		stopAsking();
		claim(false);
	});
}
// stream gets the state of the queue every second. Entering needs a poll: only its answer
// carries the ticket.
function stream() {
	if (source || entering || !leads() || !window.EventSource || !(now.retryAfterSeconds > 0)) return;
	source = new EventSource("/.well-known/vestibule/events?room=" + encodeURIComponent(now.room));
	source.onopen = anew;
	source.onmessage = function (e) {
		refused = 0;
		if (channel) channel.postMessage([now.room, e.data]);
		message(e.data);
	};
	source.addEventListener("over", function (e) {
		hush();
		if (e.data != "ask") return;
		later(Math.random() * 3);
		setTimeout(stream, 6000);
	});
	source.onerror = function () {
		if (source && source.readyState == 2) { hush(); setTimeout(stream, 3000 * Math.pow(2, Math.min(refused++, 4)) * (.75 + Math.random() / 2)) } else if (said) lost();
	};
}
function message(data) { said = Date.now(); broken = false; placed(JSON.parse(data)) }
// lost polls soon, once: if the site does not answer either, the numbers shown are old.
function lost() {
	said = 0;
	broken = fresh = true;
	within(.2 + Math.random() * 3);
}
// away reports that this page goes away, closed or left (it may come back from the
// browser's page cache). The place is kept. The page's last answer number distinguishes
// it from a newer page, for example after a reload.
function away() {
	hush();
	stopAsking();
	if (!entering) navigator.sendBeacon("/.well-known/vestibule/away?room=" + encodeURIComponent(now.room) + "&answer=" + now.answer);
}
// stopAsking cancels a pending poll: its answer would restore the ticket of a visitor that
// has left the queue meanwhile.
function stopAsking() { if (asking) asking.abort() }
function hush() { if (source) source.close(); source = null; said = 0; near = false }
function placed(n) {
	if (entering) return;
	if (fails) {
		fails = 0;
		within(Math.random());
	}
	if (now.state == "closed" ? !n.closed && !n.pausedBy : n.closed) return soon();
	if (!n.line || "queued next paused before".indexOf(now.state) < 0) return;
	var was = near, joined = at(now), early = now.state == "before", p = place(n, joined);
	// Visitors in front of a newcomer may be missing in the first messages. In a long queue the answer knows sooner whether
	// all are counted.
	var counted = n.at >= joined + (now.counting && p.total > 19 ? 8000 : 2000) && (!now.counting || n.cutoff < 8.64e15);
	// If nothing is shown here, the answer to the next poll has more.
	if (counted && !lots(now) && (!early || !n.starts && n.at >= Date.parse(now.startsAt))) show(shown(n, p));
	else if (state == "offline") show(now);
	if (n.drawn > joined && n.drawn != drew) within(Math.random() * Math.min(10, p.total / 100), drew = n.drawn); // once: the answer has the place
	near = leads() && !n.pausedBy && (joined <= Math.max(n.cutoff, early ? 0 : n.park) || lots(now) && was);
	if (near && !was) later(.05 + Math.random() * (early ? 1.5 : .45)); else overdue();
}
// overdue polls late: timers of background pages are slow; messages are not.
function overdue() { if (due && Date.now() > due) ask() }
var ends = ["waitTimeLowSeconds", "waitTimeSeconds", "waitTimeHighSeconds"];
// shown returns the state to show after a message: never more than the newest answer. A
// change in only one or two messages, for example before all edges report, is not shown.
function shown(n, p) {
	var s = Object.assign({}, now), known = word.waitTimeKnown, ahead = p.ahead, w = p.wait;
	heights = heights.filter(function (h) { return h[0] > n.at - 2500 && h[0] <= n.at });
	heights.push([n.at, ahead, w]);
	heights.forEach(function (h) { ahead = Math.max(ahead, h[1]); if (isFinite(h[2])) w = Math.max(w, h[2]) });
	var f = Math.min(1, w / word.waitTimeSeconds) || 0;
	if (n.pausedBy) {
		s.state = "paused";
		s.pausedBy = n.pausedBy;
	} else {
		s.state = p.next ? "next" : "queued";
		if (now.state == "paused" && now.pausedBy == "operator") within(Math.random() * 10); // the answer may have another message
	}
	s.counting = false;
	s.updatedAt = new Date(n.at).toISOString();
	s.peopleAhead = Math.round(Math.max(0, ahead));
	if (word.peopleAhead >= 0 && !word.counting) s.peopleAhead = Math.min(word.peopleAhead, s.peopleAhead);
	s.waitTimeKnown = isFinite(w) && s.state != "paused";
	ends.forEach(function (end) { s[end] = known ? f * word[end] : w });
	if (!now.counting) keep(s);
	w = s.waitTimeSeconds;
	var waited = (n.at - Date.parse(s.joinedAt)) / 1000;
	s.peopleWaiting = Math.max(Math.round(p.total), s.peopleAhead + 1);
	s.progressPercent = s.waitTimeKnown && s.state == "queued" ? Math.floor(100 * waited / Math.max(1, waited + w)) : -1;
	return s;
}
// keep prevents small increases of the shown wait, like the edge in its answers (see
// keepMonotone in internal/core/admission/estimate.go). The page explains larger ones.
function keep(s) {
	var high = now.waitTimeHighSeconds, both = now.waitTimeKnown && s.waitTimeKnown;
	if (both && s.waitTimeHighSeconds > high + Math.max(60, high / 5)) grew = Date.now();
	else if (!s.waitTimeLonger || now.waitTimeLonger) {
		if (now.peopleAhead >= 0) s.peopleAhead = Math.min(s.peopleAhead, now.peopleAhead);
		if (both) ends.forEach(function (end) { s[end] = Math.min(s[end], now[end]) });
	}
	s.waitTimeLonger = word.waitTimeLonger || Date.now() - grew < 300000;
}
// The arithmetic of places, as in internal/core/wire/view.go and internal/core/estimate/estimate.go;
// testdata/places.json tests that both agree.
// place returns the state of a visitor with a join time according to a message: visitors
// ahead (negative if permits are left over), visitors in total, seconds to wait, and
// whether the turn will certainly come within seconds.
function place(n, joined) {
	var ahead = 0, total = 0, from = 0, l = n.line, free = Math.max(0, n.slots), since = (joined - n.at) / 1000 + .5;
	for (var i = 0; i < l.length; i += 3) {
		from += l[i];
		var part = Math.min(1, Math.max(0, (joined - from) / l[i + 1]));
		ahead += part * (l[i + 2] - (part < 1 ? Math.min(1, l[i + 2]) : 0)); // a visitor is not in front of itself
		total += l[i + 2];
		from += l[i + 1];
	}
	ahead += (n.joining || 0) * Math.min(5, Math.max(0, since)) - free;
	var soon = entered(n.paces, 8) - free;
	return {
		ahead: ahead, total: total,
		wait: ahead > -1 ? lasts(Math.max(0, ahead + .5), n.paces, n.theta) : n.paces.length ? 0 : Infinity,
		next: n.cutoff < 8.64e15 && joined <= Math.min(Math.max(n.cutoff, n.park), n.at - 2000) && Math.max(0, ahead) < soon / 2 - Math.sqrt(soon)
	};
}
// lasts returns the seconds until the visitors ahead have entered, at paces of seconds and
// visitors per second each, if a fraction abandons each second.
function lasts(ahead, paces, theta) {
	for (var i = 0, t = 0; i < paces.length; i += 2) {
		var d = paces[i], mu = paces[i + 1], end = i + 2 == paces.length, s = theta > 0 ? Math.log1p(theta * ahead / mu) / theta : ahead / mu;
		if (mu > 0 && (end || s <= d)) return Math.min(86400, t + s);
		if (end) break;
		if ((t += d) >= 86400) return 86400;
		ahead = Math.max(0, theta > 0 ? ahead - (ahead + mu / theta) * (1 - Math.exp(-theta * d)) : ahead - mu * d);
	}
	return Infinity;
}
// entered returns how many visitors enter within a number of seconds.
function entered(paces, within) {
	for (var i = 0, n = 0; i < paces.length; i += 2) {
		var d = i + 2 == paces.length ? within : Math.min(within, paces[i]);
		n += d * paces[i + 1];
		within -= d;
	}
	return n;
}
// End of the arithmetic.
// soon polls for an answer that shows something else, in place of a poll that is held for the turn.
function soon() {
	fresh = true;
	if (!asking) within(Math.random() * 1.5);
	else if (Date.now() - sent > 2000) {
		again = true;
		stopAsking();
	}
}
// anew polls after a reconnect: an earlier poll may never be answered.
function anew() {
	if (!fails) return;
	again = !!asking;
	if (asking) stopAsking(); else ask();
}
function ask() {
	if (asking || entering) return;
	sent = Date.now();
	var cut = asking = new AbortController(), patience = setTimeout(function () { cut.abort() }, 45000);
	fetch(location.href.split("#")[0], { headers: { Accept: "application/json", "Vestibule-Poll": fresh || !leads() ? "now" : "1" }, cache: "no-store", redirect: "manual", signal: cut.signal })
		.then(function (r) {
			// Without our object it is the site itself, as the queue is gone, or something in between.
			return (/json/.test(r.headers.get("Content-Type")) ? r.json() : Promise.resolve({})).then(function (j) {
				if (!j.vestibule && (r.status >= 500 || r.status == 429 || r.headers.get("Vestibule-Decision"))) throw 0;
				return j.vestibule || { state: "entering" };
			});
		})
		.then(heard, missed)
		.then(settled, giveUp);
	function settled() {
		clearTimeout(patience);
		asking = null;
		if (again) ask();
		again = false;
	}
}
function heard(s) {
	fails = 0;
	answered = true;
	broken = false;
	// A page that was given a ticket, and polls without one from the start, blocks cookies. A draw that was announced
	// after a page was served needs parts that the page does not have.
	if (s.state == "reload" || s.draw && !now.draw) return s.cookies === false && !kept && now.state != "moment" && now.state != "closed" ? blocked() : reload();
	kept = true;
	if (s.state == "entering") return enter();
	// The shown state stays, but cannot be updated for a moment.
	fresh = s.state == "moment" || s.counting;
	if (s.state == "moment") { turn(s.state, words.moment_text); return later(s.retryAfterSeconds) }
	word = Object.assign({}, s);
	// The stream may have shown less since than the ticket remembers.
	if (!now.counting && at(s) == at(now) && !lots(s)) keep(s);
	show(s);
	if (lots(s)) near = s.retryAfterSeconds < 4; // called
	// A poll that was held for the maximum time means that the turn is near.
	later(near && Date.now() - sent > 5000 ? .1 : s.retryAfterSeconds);
}
function missed() {
	if (again) return;
	fresh = true;
	// The page has just come by the same way, so something keeps the polls from it: a policy of a server in front.
	if (fails > 1 && !answered && Date.now() - loaded > 25000 && navigator.onLine !== false) return giveUp();
	if (++fails > 1 || broken || navigator.onLine === false) turn("offline", words.offline_text);
	later(Math.min(10, Math.pow(2, fails)) * (.75 + Math.random() / 2));
}
function wake() {
	if (!locks && !visible()) hush();
	if (!visible()) return;
	claim(true);
	if (fails || Date.now() - skew - Date.parse(now.updatedAt) > 30000) ask();
}

// Options of the visitor.
function toggle(button, on) { button.setAttribute("aria-pressed", on); store(button.id, on); return on }
function pressed(e) { return e.currentTarget.getAttribute("aria-pressed") == "true" }
// armed enables ring. Some browsers play no sound before a user interaction.
function armed() {
	sound = sound || new AudioContext();
	ring = function (done) {
		sound.resume();
		[659, 880].forEach(function (pitch, i) {
			var o = sound.createOscillator(), g = sound.createGain(), at = sound.currentTime + i * .22;
			o.frequency.value = pitch;
			g.gain.value = 0;
			g.gain.setTargetAtTime(.2, at, .01);
			g.gain.setTargetAtTime(0, at + .1, .1);
			o.connect(g).connect(sound.destination);
			o.start(at);
			o.stop(at + .6);
		});
		setTimeout(done, 800);
	};
}
$("sound").onclick = function (e) {
	if (!toggle(e.currentTarget, !pressed(e))) { ring = function (done) { done() }; return }
	armed();
	ring(function () {});
};
$("notify").onclick = function (e) {
	var b = e.currentTarget;
	if (pressed(e)) return toggle(b, false);
	Notification.requestPermission().then(function (p) { toggle(b, p == "granted") });
};
if (!window.Notification || !window.isSecureContext) $("notify").hidden = true;
else if (stored.notify && Notification.permission == "granted") toggle($("notify"), true);
if (!window.AudioContext) $("sound").hidden = true;
else if (stored.sound) {
	toggle($("sound"), true);
	armed();
	["click", "keydown"].forEach(function (name) { addEventListener(name, function () { sound.resume() }) });
}

if (state = now.state, state != "left") {
	$("leave").onsubmit = stopAsking;
	show(now);
	$("tools").hidden = false;
	setInterval(tick, 1000);
	addEventListener("online", function () { fails ? anew() : ask(); stream() });
	addEventListener("pagehide", away);
	addEventListener("offline", missed);
	addEventListener("pageshow", function (e) { if (e.persisted) { ask(); claim(true) } });
	document.addEventListener("visibilitychange", wake);
}
// From here on it works without the reload. The parser adds the meta element to what is no part of the page any more.
var still = $("still");
if (still) still.remove();
if (document.readyState != "loading") stop(); // something had this script wait
if (state != "left") if (navigator.cookieEnabled && state != "blocked") listen(); else blocked();
window.vestibule = true;
})();
