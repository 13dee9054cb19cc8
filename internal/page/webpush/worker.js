// The service worker for notifications. It handles no requests: its scope is a folder without pages.
self.addEventListener("install", function () { self.skipWaiting() });

// A message is shown once, in the order of the stages, and only to a visitor that waits: a push service may hold one back
// or get it twice. What was shown is in the cache, for each room.
var stages = ["confirm", "soon", "turn"], base = "/.well-known/vestibule/push?room=", last = Promise.resolve();
function shown(m, use) {
	return caches.open("vestibule").then(function (c) { return use(c, base + encodeURIComponent(m.room)) }).catch(function () { return true }); // storage is blocked
}
function news(m) {
	return shown(m, function (c, key) {
		return c.match(key).then(function (r) { return r ? r.text() : "" }).then(function (text) {
			var was = text.split(" ");
			return was[0] != m.of || was[1] < stages.indexOf(m.stage);
		});
	});
}
function keep(m) {
	return shown(m, function (c, key) { return c.put(key, new Response(m.of + " " + stages.indexOf(m.stage))) });
}
function waits(m) {
	return Promise.resolve().then(function () {
		return fetch(base + encodeURIComponent(m.room) + "&code=" + m.code, { method: "POST", credentials: "same-origin", signal: AbortSignal.timeout(5000) });
	}).then(function (r) {
		if (r.ok && m.stage == "confirm") self.clients.matchAll({ type: "window", includeUncontrolled: true }).then(function (all) {
			all.forEach(function (c) { c.postMessage(m.room) });
		});
		return r.status != 410;
	}, function () { return true }); // offline
}
function show(m) {
	return waits(m).then(function (yes) { return yes && news(m) }).then(function (yes) {
		return yes && self.registration.showNotification(m.title, {
			body: self.location.host, lang: m.lang, dir: m.dir, tag: "vestibule-" + m.room, renotify: m.stage != "confirm", requireInteraction: m.stage == "turn", data: m.page
		}).then(function () { return keep(m) });
	});
}
self.addEventListener("push", function (e) {
	var m = e.data.json();
	e.waitUntil(last = last.then(function () { return show(m) }, function () { return show(m) }));
});
self.addEventListener("notificationclick", function (e) {
	e.notification.close();
	var to = new URL(e.notification.data, self.location.origin).href;
	e.waitUntil(self.clients.matchAll({ type: "window", includeUncontrolled: true }).then(function (all) {
		var open = all.filter(function (c) { return c.url.split("#")[0] == to })[0];
		return open ? open.focus() : self.clients.openWindow(to);
	}));
});
