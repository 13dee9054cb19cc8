(function (now) {
"use strict";
// For a custom page, which its Refresh header keeps current: reports when the page
// goes away, and requests the page at the turn, not a refresh later.
var at = "/.well-known/vestibule/", room = "?room=" + encodeURIComponent(now.room), begun = Date.now(), going = false, source;
function again(s) {
	if (going) return;
	going = true;
	setTimeout(function () {
		if (location.hash) location.reload(); else location.replace(location.href);
	}, s * 1000);
}
addEventListener("pagehide", function () {
	if (source) source.close();
	navigator.sendBeacon(at + "away" + room + "&answer=" + now.answer);
});
addEventListener("pageshow", function (e) { if (e.persisted) again(0) });
if (!window.EventSource || !(now.retryAfterSeconds > 0)) return;
source = new EventSource(at + "events" + room);
source.onmessage = function (e) {
	var n = JSON.parse(e.data);
	// A poll near the turn is held; after an immediate answer the next poll waits.
	if (!n.pausedBy && Date.parse(now.place || now.joinedAt) <= Math.max(n.cutoff, n.park)) again(Math.max(.05, 2 - (Date.now() - begun) / 1000) + Math.random() * .45);
};
source.addEventListener("over", function (e) {
	source.close();
	if (e.data == "ask") again(Math.random() * 3);
});
})
