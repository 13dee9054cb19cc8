"use strict";
// node site.js PORT KEYS AUDIENCE ROOM serves "the site" to requests from the edges. With
// Express it is: const app = require("express")(); app.use(guard({ keys, audience, room }));
const http = require("node:http");
const guard = require("./guard");

const [port, keys, audience, room] = process.argv.slice(2);
const check = guard({ keys, audience, room });
http.createServer((req, res) => check(req, res, () => res.end("the site"))).listen(port, "127.0.0.1");
