-- Vestibule for HAProxy: asks the edge about a request, and removes headers that could make the site serve
-- another request than the checked one. See haproxy.cfg.

local questions = os.getenv("VESTIBULE_QUESTIONS")

-- Headers of the visitor that the edge needs. Add those that your rules read.
local told = {
-- made of internal/edge/gate/request.go: make golden
	"accept",
	"accept-encoding",
	"accept-language",
	"access-control-request-headers",
	"access-control-request-method",
	"cookie",
	"destination",
	"hx-boosted",
	"hx-current-url",
	"hx-request",
	"origin",
	"purpose",
	"range",
	"referer",
	"sec-fetch-dest",
	"sec-fetch-mode",
	"sec-fetch-site",
	"sec-fetch-user",
	"sec-purpose",
	"turbo-frame",
	"upgrade",
	"user-agent",
	"vestibule-poll",
	"vestibule-proof",
	"vestibule-ticket",
	"x-inertia",
	"x-livewire",
	"x-livewire-navigate",
	"x-moz",
	"x-purpose",
	"x-turbo-request-id",
-- end
}

-- all returns the lines of a header in order.
local function all(headers, name)
	local out, lines = {}, headers[name]
	local i = 0
	while lines and lines[i] do
		out[#out + 1] = lines[i]
		i = i + 1
	end
	return out
end

-- Headers between the edge and this server, not for the visitor.
local hop = {
	["connection"] = true, ["content-length"] = true, ["date"] = true, ["keep-alive"] = true,
	["transfer-encoding"] = true, ["vestibule-status"] = true,
}

-- Headers of an admission, for the visitor and the site.
local given = {
	["set-cookie"] = "txn.vestibule_cookie", ["vestibule-caching"] = "txn.vestibule_caching",
	["vestibule-proof"] = "txn.vestibule_proof", ["vestibule-ticket"] = "txn.vestibule_ticket",
}

local function unavailable(txn)
	local reply = txn:reply({ status = 503 })
	reply:add_header("cache-control", "no-store")
	reply:add_header("content-type", "text/plain; charset=utf-8")
	reply:add_header("retry-after", "5")
	reply:set_body("Please try again in a moment.\n")
	txn:done(reply)
end

core.register_action("vestibule-ask", { "http-req" }, function(txn)
	local had = txn.http:req_get_headers()
	local method = txn.sf:method()
	local question = {
		["x-forwarded-method"] = { method },
		["x-forwarded-host"] = { txn.sf:req_fhdr("host") },
		["x-forwarded-uri"] = { txn.sf:pathq() },
		["x-forwarded-proto"] = { txn.sf:ssl_fc() == "1" and "https" or "http" },
		["x-forwarded-for"] = { txn.sf:src() },
	}
	for _, name in ipairs(told) do
		local lines = all(had, name)
		if #lines > 0 then
			question[name] = lines
		end
	end
	question["user-agent"] = question["user-agent"] or { "" } -- else HAProxy adds its own
	if question.upgrade then
		question.connection = { "upgrade" } -- else HAProxy takes it out
	end
	local answer = core.httpclient():get{ url = "http://vestibule/decide", dst = questions, headers = question, timeout = 9000 }
	if not answer or not answer.headers or not answer.headers["vestibule-decision"] then
		return unavailable(txn)
	end
	if answer.status == 200 and answer.headers["vestibule-decision"][0] == "admit" then
		for name, var in pairs(given) do
			local value = all(answer.headers, name)[1]
			if value then
				txn:set_var(var, value)
			end
		end
		return
	end
	-- The status for the visitor, where servers other than this one would take it for an admission.
	local status = tonumber(all(answer.headers, "vestibule-status")[1]) or answer.status
	local reply = txn:reply({ status = status })
	for name in pairs(answer.headers) do
		if not hop[name] then
			for _, value in ipairs(all(answer.headers, name)) do
				reply:add_header(name, value)
			end
		end
	end
	if method ~= "HEAD" then
		reply:set_body(answer.body or "")
	end
	txn:done(reply)
end)

-- Headers that some sites read as the path, the method, the host, the scheme or the address of a request.
local moving = {
-- generated from internal/edge/origin/headers.go: make golden
	["akamai-client-ip"] = true,
	["ali-cdn-real-ip"] = true,
	["base-url"] = true,
	["cdn-real-ip"] = true,
	["cdn-src-ip"] = true,
	["cf-connecting-ip"] = true,
	["cf-connecting-ipv6"] = true,
	["cf-pseudo-ipv4"] = true,
	["cf-visitor"] = true,
	["client-ip"] = true,
	["cloudfront-forwarded-proto"] = true,
	["cloudfront-viewer-address"] = true,
	["cluster-client-ip"] = true,
	["disguised-host"] = true,
	["do-connecting-ip"] = true,
	["fastly-client-ip"] = true,
	["fly-client-ip"] = true,
	["front-end-https"] = true,
	["http-url"] = true,
	["https"] = true,
	["incap-client-ip"] = true,
	["oxylabs-client-ip"] = true,
	["path-info"] = true,
	["proxy"] = true,
	["real-ip"] = true,
	["request-uri"] = true,
	["script-name"] = true,
	["source-ip"] = true,
	["ssl"] = true,
	["true-client-ip"] = true,
	["uri"] = true,
	["url"] = true,
	["x-accel-internal"] = true,
	["x-accel-redirect"] = true,
	["x-appengine-remote-addr"] = true,
	["x-appengine-user-ip"] = true,
	["x-azure-clientip"] = true,
	["x-azure-socketip"] = true,
	["x-backend-host"] = true,
	["x-client-addr"] = true,
	["x-client-ip"] = true,
	["x-client-proto"] = true,
	["x-client-scheme"] = true,
	["x-clientip"] = true,
	["x-cluster-client-ip"] = true,
	["x-coming-from"] = true,
	["x-context-path"] = true,
	["x-custom-ip-authorization"] = true,
	["x-front-end-https"] = true,
	["x-gateway-host"] = true,
	["x-host"] = true,
	["x-host-name"] = true,
	["x-host-override"] = true,
	["x-http-destinationurl"] = true,
	["x-http-host"] = true,
	["x-http-host-override"] = true,
	["x-http-method"] = true,
	["x-http-method-override"] = true,
	["x-http-path-override"] = true,
	["x-http-url-override"] = true,
	["x-https"] = true,
	["x-invoke-path"] = true,
	["x-invoke-query"] = true,
	["x-matched-path"] = true,
	["x-method"] = true,
	["x-method-override"] = true,
	["x-nf-client-connection-ip"] = true,
	["x-now-route-matches"] = true,
	["x-original"] = true,
	["x-originating-ip"] = true,
	["x-override-url"] = true,
	["x-path"] = true,
	["x-path-info"] = true,
	["x-proto"] = true,
	["x-protocol"] = true,
	["x-proxy-host"] = true,
	["x-proxy-url"] = true,
	["x-proxyuser-ip"] = true,
	["x-real-host"] = true,
	["x-real-ip"] = true,
	["x-real-proto"] = true,
	["x-real-uri"] = true,
	["x-real-url"] = true,
	["x-replaced-path"] = true,
	["x-request-scheme"] = true,
	["x-request-uri"] = true,
	["x-request-url"] = true,
	["x-rewrite"] = true,
	["x-root-path"] = true,
	["x-scheme"] = true,
	["x-script-name"] = true,
	["x-server-name"] = true,
	["x-server-port"] = true,
	["x-source-ip"] = true,
	["x-ssl"] = true,
	["x-sucuri-clientip"] = true,
	["x-true-client-ip"] = true,
	["x-true-ip"] = true,
	["x-unencoded-url"] = true,
	["x-uri"] = true,
	["x-url"] = true,
	["x-url-scheme"] = true,
	["x-waws-original-host"] = true,
	["x-waws-unencoded-url"] = true,
-- end
}
local families = {
-- made of the families
	"forward",
	"proxy-",
	"remote-",
	"ssl-client-",
	"wl-proxy-",
	"x-arr-",
	"x-envoy-",
	"x-forward",
	"x-middleware-",
	"x-original-",
	"x-rewrite-",
	"x-client-cert",
	"x-remote-",
	"x-sendfile",
	"x-ssl-client-",
	"x-vercel-",
	"vestibule-",
	"x-vestibule-",
-- end
}

local function strip(name)
	if moving[name] or name:find("[^a-z0-9-]") then
		return true
	end
	for _, family in ipairs(families) do
		if name:sub(1, #family) == family then
			return true
		end
	end
	return false
end

-- is_ticket reports whether a cookie, name=value, is a ticket for the edge.
local function is_ticket(cookie)
	return cookie:find("^%s*vestibule%-") or cookie:find("^%s*__Host%-vestibule%-") or cookie:find("^%s*__Secure%-vestibule%-")
end

core.register_action("vestibule-strip", { "http-req" }, function(txn)
	local had = txn.http:req_get_headers()
	for name in pairs(had) do
		if strip(name:lower()) then
			txn.http:req_del_header(name)
		end
	end
	local kept = {}
	for _, line in ipairs(all(had, "cookie")) do
		for cookie in line:gmatch("[^;]+") do
			if not is_ticket(cookie) then
				kept[#kept + 1] = cookie:match("^%s*(.-)%s*$")
			end
		end
	end
	txn.http:req_del_header("cookie")
	if #kept > 0 then
		txn.http:req_add_header("cookie", table.concat(kept, "; "))
	end
end)

-- Headers that make shared caches store an answer, besides all that end in -cache-control.
local caching = {
-- made of internal/edge/origin/headers.go: make golden
	["edge-control"] = true,
	["expires"] = true,
	["surrogate-control"] = true,
	["x-accel-expires"] = true,
-- end
}

-- private returns directives for caches without those that let shared ones store an answer.
local function private(line)
	local kept = {}
	for directive in line:gmatch("[^,]+") do
		local name = directive:match("^%s*([^=%s]*)"):lower()
		if name ~= "public" and name ~= "private" and name ~= "s-maxage" and name ~= "proxy-revalidate" then
			kept[#kept + 1] = directive:match("^%s*(.-)%s*$")
		end
	end
	return table.concat(kept, ", ")
end

core.register_action("vestibule-answer", { "http-res" }, function(txn)
	local had = txn.http:res_get_headers()
	local alone = txn:get_var("txn.vestibule_caching")
	for name in pairs(had) do
		local lower = name:lower()
		if lower:sub(1, 10) == "vestibule-" or lower == "alt-svc" or lower == "alternate-protocol" or
			alone and (caching[lower] or lower:sub(-14) == "-cache-control") then
			txn.http:res_del_header(name)
		end
	end
	if alone then
		txn.http:res_del_header("cache-control")
		for _, line in ipairs(all(had, "cache-control")) do
			line = private(line)
			if line ~= "" then
				txn.http:res_add_header("cache-control", line)
			end
		end
	end
	local cookies = all(had, "set-cookie")
	if #cookies > 0 then
		txn.http:res_del_header("set-cookie")
		for _, cookie in ipairs(cookies) do
			if not is_ticket(cookie) then
				txn.http:res_add_header("set-cookie", cookie)
			end
		end
	end
end)
