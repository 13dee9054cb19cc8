(function (now) {
"use strict";
// For a custom page, which its Refresh header keeps current: reports when the page
// goes away, and requests the page at the turn, not a refresh later.
var at = "/.well-known/vestibule/", room = "?room=" + encodeURIComponent(now.room), begun = Date.now(), going = false, source, was = now.state == "closed" ? "closed" : null;
function again(s) {
	if (going) return;
	going = true;
	setTimeout(function () { // as in page.js
		var to = location.href, bare = to.split("#")[0];
		if (to != bare) try {
			history.replaceState(null, "", bare + (bare.indexOf("?") < 0 ? "?" : "&"));
		} catch (e) { to = bare }
		location.replace(to);
	}, s * 1000);
}
addEventListener("pagehide", function () {
	if (source) source.close();
	navigator.sendBeacon(at + "away" + room + "&answer=" + now.answer);
});
addEventListener("pageshow", function (e) { if (e.persisted) again(0) });
if (!window.EventSource || !(now.retryAfterSeconds > 0)) return;
// One tab of a browser has a stream, see page.js.
var visible = document.visibilityState == "visible", channel = window.BroadcastChannel && new BroadcastChannel("vestibule");
if (navigator.locks) navigator.locks.request("vestibule", { steal: visible }, function () {
	listen();
	return new Promise(function () {}); // for the life of the page
}).catch(function () { if (source) source.close() });
else if (visible) listen();
function listen() {
	source = new EventSource(at + "events" + room);
	source.onmessage = function (e) {
		var n = JSON.parse(e.data);
		if (channel) channel.postMessage([now.room, e.data]);
		// The line is closed, paused or open. A long one asks over ten seconds.
		var is = n.closed ? "closed" : n.pausedBy || "", total = 0;
		for (var i = 2; n.line && i < n.line.length; i += 3) total += n.line[i];
		if (was == "closed" ? !is : was != null && is != was) again(Math.random() * Math.max(1.5, Math.min(10, total / 100)));
		was = is;
		// A poll near the turn is held, but not before a start; after an immediate answer the next poll waits.
		if (!is && Date.parse(now.place || now.joinedAt) <= Math.max(n.cutoff, now.state == "before" ? 0 : n.park)) again(Math.max(.05, 2 - (Date.now() - begun) / 1000) + Math.random() * .45);
	};
	source.addEventListener("over", function (e) {
		source.close();
		if (e.data == "ask") again(Math.random() * 3);
	});
}
})
