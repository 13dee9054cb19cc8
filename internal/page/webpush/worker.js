// The service worker for notifications. It handles no requests: its scope is a folder without pages.
self.addEventListener("install", function () { self.skipWaiting() });
self.addEventListener("push", function (e) {
	var m = e.data.json(), room = "?room=" + encodeURIComponent(m.room);
	var shown = self.registration.showNotification(m.title, {
		body: self.location.host, lang: m.lang, dir: m.dir, tag: "vestibule-" + m.room, renotify: !m.code, requireInteraction: m.stage == "turn", data: m.page
	});
	e.waitUntil(!m.code ? shown : Promise.all([shown, fetch("/.well-known/vestibule/push" + room + "&code=" + m.code, { method: "POST", credentials: "same-origin" }).then(function (r) {
		return r.ok && self.clients.matchAll({ type: "window", includeUncontrolled: true }).then(function (all) {
			all.forEach(function (c) { c.postMessage(m.room) });
		});
	})]));
});
self.addEventListener("notificationclick", function (e) {
	e.notification.close();
	var to = new URL(e.notification.data, self.location.origin).href;
	e.waitUntil(self.clients.matchAll({ type: "window", includeUncontrolled: true }).then(function (all) {
		var open = all.filter(function (c) { return c.url.split("#")[0] == to })[0];
		return open ? open.focus() : self.clients.openWindow(to);
	}));
});
