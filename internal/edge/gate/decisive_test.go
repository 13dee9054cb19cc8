package gate

import (
	"flag"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vestibule/internal/core/rules"
	"vestibule/internal/lab/testkit"
)

var rewrite = flag.Bool("rewrite", false, "write the lists of deploy/fronts anew")

// TestDecisiveHeaders: the list has every header that a decision reads, and no other but that of rules. Servers in
// front and the document name the same ones.
func TestDecisiveHeaders(t *testing.T) {
	read := map[string]bool{}
	for _, method := range []string{"GET", "MOVE", "SEARCH"} {
		r := Request{Method: method}
		r.ReadHeader(nil, netip.AddrPort{}, nil, func(name string) []string {
			read[name] = true
			return nil
		})
	}
	// Servers in front set these, or forward to the site themselves.
	for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Proto", "Via", HopsHeader} {
		delete(read, name)
	}
	read[userAgent] = true
	for _, name := range Decisive { // of libraries
		r := Request{Method: "GET", Lines: oneLine{Name: name, Value: "http://shop.example/"}}
		if senderOf(&r, new([]rules.Header)) != (sender{}) {
			read[name] = true
		}
	}
	for _, name := range Decisive {
		if !read[name] || http.CanonicalHeaderKey(name) != name {
			t.Errorf("%s is not read", name)
		}
		delete(read, name)
	}
	for name := range read {
		t.Errorf("%s is read, and not listed", name)
	}
	if !slices.IsSorted(Decisive) {
		t.Errorf("not in order: %v", Decisive)
	}

	const note = "made of internal/edge/gate/request.go: make golden\n"
	var nginx, lua strings.Builder
	for _, name := range Decisive {
		nginx.WriteString("\tproxy_set_header " + name + " $http_" + strings.ToLower(strings.ReplaceAll(name, "-", "_")) +
			";\n")
		lua.WriteString("\t\"" + strings.ToLower(name) + "\",\n")
	}
	asked := strings.Replace(nginx.String(), "$http_upgrade;", "$vestibule_upgrade;", 1)
	testkit.Section(t, "nginx/vestibule-server.conf", "\t# "+note, "\t# end\n", asked, *rewrite)
	testkit.Section(t, "haproxy/vestibule.lua", "-- "+note, "-- end\n", lua.String(), *rewrite)

	doc := testkit.Must(os.ReadFile(filepath.Join("..", "..", "..", "docs", "INTEGRATIONS.md")))(t)
	if want := "`" + strings.Join(Decisive, "`, `") +
		"`"; !strings.Contains(strings.Join(strings.Fields(string(doc)), " "), want) {
		t.Errorf("docs/INTEGRATIONS.md must name these headers: %s", want)
	}
}

// oneLine is a request's only header line.
type oneLine rules.Header

// AppendTo implements [HeaderLines].
func (l oneLine) AppendTo(out []rules.Header) []rules.Header { return append(out, rules.Header(l)) }
