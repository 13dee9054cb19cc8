"use strict";
// Express middleware for a site that accepts requests only from the edges of a waiting room.
// It checks the proof in each request (Vestibule-Proof) and rejects requests sent to the
// site's address directly. It needs only Node (18 or newer):
//
//	app.use(guard({
//	  keys: "https://shop.example/.well-known/vestibule/jwks.json",
//	  audience: "http://10.0.0.5:8080", // this site, as the room's origin names it
//	  room: "shop",                     // omit it to accept any
//	}));
const { createPublicKey, verify } = require("node:crypto");

const keysFor = 300e3, askEvery = 10e3; // milliseconds
const leeway = 30; // seconds, for clock differences

module.exports = function guard({ keys, audience, room }) {
	let known = new Map(), asked = 0, asking = null;

	async function ask() {
		asked = Date.now();
		const res = await fetch(keys, { signal: AbortSignal.timeout(5000) });
		if (!res.ok) throw new Error("keys: status " + res.status);
		const set = await res.json();
		known = new Map(set.keys.filter((k) => k.kty == "OKP" && k.crv == "Ed25519").map((k) => [k.kid, createPublicKey({ key: k, format: "jwk" })]));
	}

	async function key(id) {
		const age = Date.now() - asked;
		if (age >= keysFor || (!known.has(id) && age >= askEvery)) asking = ask().finally(() => { asking = null });
		if (asking) await asking;
		return known.get(id);
	}

	async function check(req) {
		const lines = req.headersDistinct ? req.headersDistinct["vestibule-proof"] || [] : [].concat(req.headers["vestibule-proof"] || []);
		if (lines.length != 1) throw new Error("there must be one Vestibule-Proof");
		const parts = lines[0].split(".");
		if (parts.length != 3 || lines[0].length > 4096) throw new Error("malformed");
		const part = (i) => JSON.parse(Buffer.from(parts[i], "base64url"));
		const head = part(0);
		if (head.alg != "EdDSA") throw new Error("another algorithm");
		const public_ = await key(head.kid);
		if (!public_ || !verify(null, Buffer.from(parts[0] + "." + parts[1]), public_, Buffer.from(parts[2], "base64url"))) throw new Error("broken signature");
		const claims = part(1), now = Date.now() / 1000;
		if (claims.iss != "vestibule" || claims.aud !== audience) throw new Error("for another audience");
		if (!(now < claims.exp + leeway) || !(now > claims.iat - leeway)) throw new Error("expired");
		if (room && claims.room !== room) throw new Error("of another room");
		return claims;
	}

	return function (req, res, next) {
		check(req).then((claims) => {
			req.vestibule = claims;
			next();
		}, (err) => {
			res.statusCode = 403;
			res.setHeader("Content-Type", "text/plain; charset=utf-8");
			res.end("Please come in through the front door: " + err.message + "\n");
		});
	};
};
