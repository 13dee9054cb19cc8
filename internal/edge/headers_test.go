package edge

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// reached sends a request with one header and returns under which names the site
// found its value.
func (st *stage) reached(header string) []string {
	st.t.Helper()
	const value = "/vip-6.6.6.6-https"
	if codes, body := st.door.raw(request("GET /about HTTP/1.1", "shop.example", header+": "+value)); !slices.Equal(codes,
		[]int{http.StatusOK}) && !slices.Equal(codes, []int{http.StatusBadRequest}) {
		st.t.Errorf("%s: %v %.60q", header, codes, body)
	}
	var names []string
	for _, r := range st.origin.requestsSeen() {
		for name, values := range r.Header {
			if slices.Contains(values, value) {
				names = append(names, name)
			}
		}
	}
	return names
}

// movingHeaders may make a site serve another request.
var movingHeaders = []string{
	"X-Original-URL", "X-Original-Uri", "X-Original-Host", "X-Original-Path", "X-Original-Method", "X-Original-Proto",
	"X-Original-For",
	"X-Rewrite-URL", "X-Rewrite-Path", "X-Override-URL", "X-Envoy-Original-Path", "X-Envoy-Original-Host",
	"X-Envoy-External-Address",
	"X-Script-Name", "Script-Name", "Path-Info", "X-Request-Uri", "X-HTTP-DestinationURL", "X-Matched-Path",
	"X-Middleware-Subrequest",
	"X-Replaced-Path", "X-WAWS-Unencoded-URL", "X-Accel-Redirect",
	"X-Host", "X-HTTP-Host-Override", "X-Real-Host", "X-Forwarded-Server", "X-Forwarded-Port", "X-Forwarded-Prefix",
	"X-Forwarded-Uri",
	"X-Forwarded", "X-Forwarded-Anything", "X-Forward-For", "X-Forwarder-For", "Forwarded", "Forwarded-For",
	"Forwarded-Host", "Proxy", "Proxy-Host",
	"Front-End-Https", "X-Forwarded-Ssl", "X-Forwarded-Scheme", "X-Forwarded-Protocol", "X-Url-Scheme", "X-Scheme",
	"X-ARR-SSL", "Https", "CF-Visitor", "CloudFront-Forwarded-Proto",
	"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override",
	"X-Real-IP", "X-Client-IP", "Client-IP", "True-Client-IP", "CF-Connecting-IP", "CF-Connecting-IPv6",
	"Fastly-Client-Ip", "Fly-Client-Ip",
	"X-Cluster-Client-Ip", "X-Originating-IP", "X-Remote-IP", "X-Remote-Addr", "X-ProxyUser-Ip", "WL-Proxy-Client-IP",
	"WL-Proxy-SSL",
	"X-Azure-ClientIP", "X-Appengine-User-Ip", "X-Custom-IP-Authorization", "X-Nf-Client-Connection-Ip",
	"Remote-User", "X-Remote-User", "Ssl-Client-Verify", "Ssl-Client-S-Dn", "X-SSL-Client-Cert", "X-Client-Cert",
	"X-Vercel-Forwarded-For", "X-Vercel-Proxied-For",
	"Akamai-Client-IP", "X-Sucuri-ClientIP", "X-Sendfile", "X-Sendfile-Type",
	"X-Vestibule-Anything", "Vestibule-Poll-Like", "$WSSC", "$WSRA", // WebSphere's
}

// A site may take path, host, scheme, method or address from a header: a visitor's never reach it, in any spelling.
func TestNoHeaderOfAVisitorMovesTheRequest(t *testing.T) {
	st := open(t, nil)
	for _, name := range movingHeaders {
		for _, spelling := range []string{
			name, strings.ToLower(name), strings.ToUpper(name),
			strings.ReplaceAll(name, "-", "_"), strings.ReplaceAll(name, "-", "."), strings.Replace(name, "-", "_", 1),
			strings.ReplaceAll(name, "-", "!"),
		} {
			if found := st.reached(spelling); len(found) > 0 {
				t.Errorf("%s reached the site as %v", spelling, found)
			}
		}
	}
	for _, name := range []string{
		"X-Requested-With", "X-Csrf-Token", "Authorization", "X-App-Version", "Sec-Ch-Ua",
		"X-Request-Id", "Traceparent", "Origin-Trial",
	} {
		if found := st.reached(name); !slices.Equal(found, []string{name}) {
			t.Errorf("%s reached the site as %v", name, found)
		}
	}
}

// Headers of a proxy in front pass to the site if the operator names them.
func TestHeadersThatTheOperatorNamesPass(t *testing.T) {
	st := open(t, func(st *stage) { st.cfg.ForwardHeaders = []string{"cf-connecting-ip", "X-Original-URL", "x_tenant"} })
	for name, want := range map[string][]string{
		"CF-Connecting-IP": {"Cf-Connecting-Ip"}, "x-original-url": {"X-Original-Url"}, "X_Tenant": {"X_tenant"},
		"X_Original_URL": nil, "X-Original-Uri": nil, "True-Client-IP": nil, "X_Tenants": nil,
	} {
		if found := st.reached(name); !slices.Equal(found, want) {
			t.Errorf("%s reached the site as %v, want %v", name, found, want)
		}
	}
}
