(function (now) {
"use strict";
// For a page of an operator's own, which its Refresh header keeps current: says when
// the page goes away, and asks for the page at the turn, not a refresh later.
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
	// A question near the turn is held; one that comes back at once is not repeated at once.
	if (!n.pausedBy && Date.parse(now.place || now.joinedAt) <= Math.max(n.horizon, n.park)) again(Math.max(.05, 2 - (Date.now() - begun) / 1000) + Math.random() * .45);
};
source.addEventListener("over", function (e) {
	source.close();
	if (e.data == "ask") again(Math.random() * 3);
});
})
