package origin

import (
	"flag"
	"net/http"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"vestibule/internal/core/ticket"
	"vestibule/internal/lab/testkit"
)

var rewrite = flag.Bool("rewrite", false, "write the lists of deploy/fronts anew")

var tables = [][]string{pathHeaders, methodHeaders, hostHeaders, schemeHeaders, addressHeaders}

// The tables use the spelling of net/http.
func TestTheTablesOfHeadersAreCanonical(t *testing.T) {
	rules := NewHeaderRules(nil, nil)
	for _, table := range append(tables, edgeHeaders) {
		for _, name := range table {
			if http.CanonicalHeaderKey(name) != name {
				t.Errorf("%s is spelled %s", name, http.CanonicalHeaderKey(name))
			}
		}
	}
	for name := range rules.out {
		if hasFamily(name, headerFamilies) {
			t.Errorf("%s is of a family already", name)
		}
	}
}

// nginx does not support header families. These are the known members.
var familyMembers = []string{
	"Forwarded", "Forwarded-For", "Forwarded-Host", "Forwarded-Proto", "Proxy-Client-Ip", "Proxy-Host", "Proxy-Url",
	"Wl-Proxy-Client-Ip", "Wl-Proxy-Ssl",
	"X-Arr-Ssl", "X-Envoy-External-Address", "X-Envoy-Original-Host", "X-Envoy-Original-Path", "X-Forward-For",
	"X-Forwarded", "X-Forwarded-By",
	"X-Forwarded-Method", "X-Forwarded-Path", "X-Forwarded-Port", "X-Forwarded-Prefix", "X-Forwarded-Protocol",
	"X-Forwarded-Scheme", "X-Forwarded-Server",
	"X-Forwarded-Ssl", "X-Forwarded-Uri", "X-Forwarder-For", "X-Middleware-Prefetch", "X-Middleware-Rewrite",
	"X-Middleware-Subrequest",
	"X-Original-For", "X-Original-Forwarded-For", "X-Original-Host", "X-Original-Method", "X-Original-Path",
	"X-Original-Proto", "X-Original-Remote-Addr",
	"X-Original-Scheme", "X-Original-Uri", "X-Original-Url", "X-Rewrite-Path", "X-Rewrite-Uri", "X-Rewrite-Url",
	"Remote-User", "Ssl-Client-S-Dn", "Ssl-Client-Verify", "X-Client-Cert", "X-Remote-Addr", "X-Remote-Ip",
	"X-Remote-User", "X-Sendfile", "X-Sendfile-Type",
	"X-Ssl-Client-Cert", "X-Vercel-Forwarded-For", "X-Vercel-Proxied-For",
	"Vestibule-Command", "Vestibule-Decision", "Vestibule-Hops", "Vestibule-Poll", "Vestibule-Ticket",
	"X-Vestibule-Decision",
}

// nginx does not know names by their ends either. These are the known ones that control caches. It takes
// X-Accel-Expires for itself.
var vendorsCaching = []string{
	"Akamai-CDN-Cache-Control", "Azure-CDN-Cache-Control", "CDN-Cache-Control", "Cloudflare-CDN-Cache-Control",
	"Fastly-CDN-Cache-Control",
	"Netlify-CDN-Cache-Control", "Vercel-CDN-Cache-Control", "X-LiteSpeed-Cache-Control",
}

// Configurations of servers in front of the site remove the same headers as the edge. `make golden` writes their
// lists.
func TestFrontsTakeTheSameHeadersOut(t *testing.T) {
	rules := NewHeaderRules(nil, nil)
	names := slices.Sorted(slices.Values(slices.Concat(tables...)))
	for _, name := range familyMembers {
		if http.CanonicalHeaderKey(name) != name || !rules.refuses(name) {
			t.Errorf("%s is of no family", name)
		}
	}
	families := append(slices.Clone(headerFamilies), ownFamilies...)
	const note = "generated from internal/edge/origin/headers.go: make golden"

	var nginx strings.Builder
	nginx.WriteString("# Headers that some sites read as the path, the method, the host, the scheme or the address of a " +
		"request, and ours.\n# " + note + "\n")
	for _, name := range slices.Sorted(slices.Values(append(slices.Clone(names), familyMembers...))) {
		nginx.WriteString("proxy_set_header " + name + " \"\";\n")
	}
	testkit.Section(t, "nginx/vestibule-strip.conf", "", "", nginx.String(), *rewrite)

	var list, prefixes strings.Builder
	for _, name := range names {
		list.WriteString("\t[\"" + strings.ToLower(name) + "\"] = true,\n")
	}
	for _, family := range families {
		prefixes.WriteString("\t\"" + strings.ToLower(family) + "\",\n")
	}
	testkit.Section(t, "haproxy/vestibule.lua", "-- "+note+"\n", "-- end\n", list.String(), *rewrite)
	testkit.Section(t, "haproxy/vestibule.lua", "-- made of the families\n", "-- end\n", prefixes.String(), *rewrite)

	var traefik strings.Builder
	for _, name := range slices.Sorted(slices.Values(append(slices.Clone(names), familyMembers...))) {
		if !hasFamily(name, ownFamilies) { // ours are for the edge, and removed behind it
			traefik.WriteString("          " + name + ": \"\"\n")
		}
	}
	testkit.Section(t, "traefik/vestibule.yaml", "# "+note+"\n", "# end\n", traefik.String(), *rewrite)

	var caddy strings.Builder
	for _, family := range headerFamilies { // ours are for the edge, and removed behind it
		caddy.WriteString("\trequest_header -" + family + "*\n")
	}
	for _, c := range "_.!#$%&'+^`|~" {
		caddy.WriteString("\trequest_header \"-*" + string(c) + "*\"\n")
	}
	for _, name := range names {
		caddy.WriteString("\trequest_header -" + name + "\n")
	}
	testkit.Section(t, "caddy/vestibule.caddy", "# "+note+"\n", "# end\n", caddy.String(), *rewrite)
}

// Configurations of servers in front of the site take the same headers of a site's answer out that is for one visitor.
func TestFrontsTakeTheSameCachingOut(t *testing.T) {
	const note = "made of internal/edge/origin/headers.go: make golden\n"
	var maps, hides, lua, caddy strings.Builder
	for _, name := range slices.Sorted(slices.Values(append(slices.Clone(cachingHeaders), vendorsCaching...))) {
		if !controlsCaches(http.CanonicalHeaderKey(name)) {
			t.Errorf("%s does not control caches", name)
		}
		if name == "X-Accel-Expires" {
			continue
		}
		as := strings.ToLower(strings.ReplaceAll(name, "-", "_"))
		maps.WriteString("map $vestibule_caching $vestibule_" + as + " { default \"\"; \"\" $upstream_http_" + as + "; }\n")
		hides.WriteString("\tproxy_hide_header " + name + ";\n\tadd_header " + name + " $vestibule_" + as + " always;\n")
	}
	for _, name := range cachingHeaders {
		lua.WriteString("\t[\"" + strings.ToLower(name) + "\"] = true,\n")
		caddy.WriteString("\t\t\t\t\t\t-" + name + "\n")
	}
	testkit.Section(t, "nginx/vestibule-http.conf", "# "+note, "# end\n", maps.String(), *rewrite)
	testkit.Section(t, "nginx/vestibule-server.conf", "\t# "+note, "\t# end\n", hides.String(), *rewrite)
	testkit.Section(t, "haproxy/vestibule.lua", "-- "+note, "-- end\n", lua.String(), *rewrite)
	testkit.Section(t, "caddy/vestibule.caddy", "# "+note, "\t\t\t\t\t\t# end\n", caddy.String(), *rewrite)
}

// All cookies but tickets remain, in order.
func TestTicketsGoOutOfCookies(t *testing.T) {
	plainly := func(l string) string {
		if !strings.Contains(l, ticket.CookieStem) {
			return l
		}
		var parts []string
		for part := range strings.SplitSeq(l, ";") {
			part = strings.TrimSpace(part)
			name, _, _ := strings.Cut(part, "=")
			if part != "" && !ticket.IsCookieName(strings.TrimSpace(name)) {
				parts = append(parts, part)
			}
		}
		return strings.Join(parts, "; ")
	}
	piece := rapid.SampledFrom([]string{
		"a=1", "b", "", " ", "\t", "=", "c = 2 ", ticket.CookieStem + "sale=x", " " + ticket.CookieStem + "sale = x",
		"__Host-" + ticket.CookieStem + "sale=y", ticket.CookieStem, "d=" + ticket.CookieStem,
	})
	rapid.Check(t, func(t *rapid.T) {
		l := strings.Join(rapid.SliceOf(piece).Draw(t, "pieces"),
			rapid.SampledFrom([]string{";", "; ", " ; "}).Draw(t, "separator"))
		if got, want := withoutTickets(l), plainly(l); got != want {
			t.Fatalf("%q: %q, want %q", l, got, want)
		}
	})
	const cookies = "theirs=1; more=2; " + ticket.CookieStem + "sale=x"
	if n := testing.AllocsPerRun(10, func() { withoutTickets(cookies) }); n > 0 {
		t.Errorf("%v allocations of a ticket behind what is the site's", n)
	}
}
