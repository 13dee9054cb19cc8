// The button for notifications, of pages of rooms with web_push. It replaces the button that works with an open page.
(function (c) {
	var tools = document.getElementById("tools"), old = document.getElementById("notify"), button = document.createElement("button"), told = document.createElement("p");
	if (!tools || !window.isSecureContext) return;
	button.id = "push";
	button.textContent = c.label;
	told.setAttribute("role", "status");
	tools.insertAdjacentElement("afterend", told);
	function say(text) { told.textContent = text }
	if (!navigator.serviceWorker || !window.PushManager || !window.Notification) {
		if (/iP(hone|ad|od)/.test(navigator.userAgent) || navigator.platform == "MacIntel" && navigator.maxTouchPoints > 1) say(c.home);
		return;
	}
	var base = "/.well-known/vestibule/", key = "vestibule-push-" + c.room;
	function post(query, header) {
		return fetch(base + "push?room=" + encodeURIComponent(c.room) + query, { method: "POST", headers: header ? { "Vestibule-Push": header } : {}, cache: "no-store" })
			.then(function (r) { if (!r.ok) throw new Error(r.status) });
	}
	function on(yes) {
		button.setAttribute("aria-pressed", yes);
		try { if (yes) sessionStorage[key] = 1; else sessionStorage.removeItem(key) } catch (e) {} // storage is blocked
	}
	function bytes(text) {
		var s = atob(text.replace(/-/g, "+").replace(/_/g, "/")), out = new Uint8Array(s.length);
		for (var i = 0; i < s.length; i++) out[i] = s.charCodeAt(i);
		return out;
	}
	function active(reg) {
		return new Promise(function (done) {
			if (reg.active) return done(reg);
			var w = reg.installing || reg.waiting;
			w.addEventListener("statechange", function () { if (reg.active) done(reg) });
		});
	}
	function subscribe() {
		return Notification.requestPermission().then(function (p) {
			if (p != "granted") throw new Error(p);
			return navigator.serviceWorker.register(base + "push-worker.js", { scope: base });
		}).then(active).then(function (reg) {
			return reg.pushManager.getSubscription().then(function (had) {
				var k = had && had.options && had.options.applicationServerKey;
				if (k && String(new Uint8Array(k)) != String(bytes(c.key))) return had.unsubscribe();
			}).then(function () {
				return reg.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: bytes(c.key) });
			});
		}).then(function (sub) {
			var j = sub.toJSON();
			return post("", [j.endpoint, j.keys.p256dh, j.keys.auth, document.documentElement.lang].join(" "));
		});
	}
	button.onclick = function () {
		button.disabled = true;
		var off = button.getAttribute("aria-pressed") == "true";
		(off ? post("&end=1") : subscribe()).then(function () {
			on(!off);
			say(""); // the first message confirms it
		}, function () { say(c.failed) }).then(function () { button.disabled = false });
	};
	navigator.serviceWorker.addEventListener("message", function (e) { if (e.data == c.room) say(c.on) });
	var was = false;
	try { was = sessionStorage[key] == 1 } catch (e) {}
	on(was && Notification.permission == "granted");
	tools.appendChild(button);
	if (old) old.hidden = true;
})
