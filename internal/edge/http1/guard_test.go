package http1_test

import (
	"errors"
	"strings"
	"testing"

	"vestibule/internal/edge/http1"
)

// play gives bytes to a guard, cut in two, and reports whether all may be read.
func guarded(g *http1.Guard, text string, cut int) bool {
	for _, piece := range []string{text[:cut], text[cut:]} {
		if n, err := g.Next([]byte(piece)); err != nil {
			if !errors.Is(err, http1.ErrAnswer) || n > len(piece) {
				panic("another error, or too long")
			}
			return false
		}
	}
	return true
}

const behind = "GET /next HTTP/1.1\r\nHost: a\r\n\r\n"

// A guard of requests refuses what has two readings, also behind bodies, wherever the bytes are cut.
func TestGuardOfRequests(t *testing.T) {
	ok := map[string]string{
		"plain":       behind,
		"blank lines": "\r\n\r\n" + behind,
		"bare LF":     "GET / HTTP/1.1\nHost: a\n\n",
		"a body":      "POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\n x:",
		"chunks": "POST / HTTP/1.1\r\nTransfer-Encoding:  Chunked \r\n\r\n3;a=b\r\n x:\r\n0\r\n" +
			"Trailer: x\r\n\r\n",
		"an unknown coding":  "POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n x y z",
		"HTTP/2":             "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00 \n \n",
		"a long line":        "GET / HTTP/1.1\r\nCookie: " + strings.Repeat("c", 5000) + "\r\n\r\n",
		"a long name":        "GET / HTTP/1.1\r\n" + strings.Repeat("c", 500) + ": 1\r\n\r\n",
		"a long request":     "GET /" + strings.Repeat("c", 500) + " HTTP/1.1\r\n\r\n",
		"blanks for a value": "GET / HTTP/1.1\r\nX: \t \r\nY:\r\n\r\n",
		"HTTP/1.0":           "POST / HTTP/1.0\r\nContent-Length: 1\r\n\r\n ",
	}
	bad := map[string]string{
		"a fold":              "GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n",
		"a fold with a tab":   "GET / HTTP/1.1\r\n\tHost: a\r\n\r\n",
		"a fold of blanks":    "GET / HTTP/1.1\r\nHost: a\r\n \r\n\r\n",
		"both framings":       "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"the other way round": "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
		"a length twice":      "POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
		"two lengths in one":  "POST / HTTP/1.1\r\nContent-Length: 3, 3\r\n\r\nabc",
		"a signed length":     "POST / HTTP/1.1\r\nContent-Length: +3\r\n\r\nabc",
		"no length":           "POST / HTTP/1.1\r\nContent-Length:\r\n\r\nabc",
		"two codings":         "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunked in HTTP/1.0": "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"a padded length":     "POST / HTTP/1.1\r\nContent-Length:" + strings.Repeat(" ", 200) + "3\r\n\r\nabc",
		"a padded coding": "POST / HTTP/1.1\r\nTransfer-Encoding:" + strings.Repeat(" ", 200) +
			"chunked\r\n\r\n0\r\n\r\n",
		"a blank before colon": "POST / HTTP/1.1\r\nContent-Length : 3\r\n\r\nabc",
		"no colon":             "GET / HTTP/1.1\r\nHost\r\n\r\n",
		"a broken chunk":       "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
		"a fold in trailers":   "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n x\r\n\r\n",
	}
	for before, first := range map[string]string{
		"": "", "behind a request: ": behind, "behind a body: ": ok["a body"],
		"behind chunks: ": ok["chunks"],
	} {
		for name, text := range ok {
			if first != "" && name == "HTTP/2" {
				continue
			}
			for cut := range len(first + text) {
				if !guarded(&http1.Guard{}, first+text, cut) {
					t.Fatalf("%s%s, cut at %d, is refused", before, name, cut)
				}
			}
		}
		for name, text := range bad {
			for cut := range len(first + text) {
				if guarded(&http1.Guard{}, first+text, cut) {
					t.Fatalf("%s%s, cut at %d, is read", before, name, cut)
				}
			}
		}
	}
}

// A guard of answers follows them by the methods of their requests.
func TestGuardOfAnswers(t *testing.T) {
	const good = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	for _, c := range []struct {
		name, text string
		asked      string
		ok         bool
	}{
		{"plain", good, "GET", true},
		{"of a HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "HEAD", true},
		{"behind a hint", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + good, "GET", true},
		{"an upgrade", "HTTP/1.1 101 Switching Protocols\r\n\r\n \n \n", "GET", true},
		{"to the end", "HTTP/1.1 200 OK\r\n\r\n x\n y\n", "GET", true},
		{"no body", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "GET", true},
		{"late bytes", good + good, "GET", false},
		{"late bytes of a HEAD", good, "HEAD", false},
		{"late bytes behind chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + good, "GET", false},
		{"unasked", good, "", false},
		{"bare LF", "HTTP/1.1 200 OK\nContent-Length: 2\n\nok", "GET", false},
		{"a fold", "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\nok", "GET", false},
		{"a length twice", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", "GET", false},
		{
			"both framings", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "GET",
			false,
		},
		{"chunked in HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "GET", false},
		{"a blank before the colon", "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok", "GET", false},
		{"no status", "SSH-2.0-x\r\n", "GET", false},
	} {
		for cut := range len(c.text) {
			g := http1.GuardOfAnswers()
			g.Asks(c.asked)
			if guarded(g, c.text, cut) != c.ok {
				t.Fatalf("%s, cut at %d: %v", c.name, cut, !c.ok)
			}
		}
	}
	g := http1.GuardOfAnswers()
	for range 3 {
		if g.Asks("GET"); !guarded(g, good, 7) {
			t.Error("a further answer is refused")
		}
	}
}
