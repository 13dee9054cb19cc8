package gate

import (
	"log/slog"
	"strconv"
	"strings"
	"sync"

	"vestibule/internal/core/fleettime"
	"vestibule/internal/edge/origin"
	"vestibule/internal/node"
)

// A site whose address leads to an edge of the fleet, directly or by other servers, would get each request without end.
// Via names the edges by the host, so that a request ends where it comes for the same host again; HopsHeader counts,
// for servers between that drop Via.

// HopsHeader is the number of edges that a request has passed.
const HopsHeader = node.HopsHeader

// maxHops is how many edges a request may pass: rooms of several hosts may be behind each other.
const maxHops = 4

// lastHop is the Via of a request before, without that of its visitor.
type lastHop struct{ host, version, via string }

// add returns the number of edges that a request has passed with this one, more than maxHops for a request that has
// been here for the same host, and the Via that the site gets (RFC 9110, 7.6.3).
func (last *lastHop) add(r *Request, host string) (n int, via string) {
	if r.Hops != "" {
		passed, err := strconv.ParseUint(r.Hops, 10, 8)
		if err != nil {
			return maxHops + 1, ""
		}
		n = int(passed)
	}
	if len(r.Via) == 0 && last.host == host && last.version == r.Version {
		return n + 1, last.via
	}
	own := "vestibule-" + host
	for _, line := range r.Via {
		for member := range strings.SplitSeq(line, ",") {
			if words := strings.Fields(member); len(words) > 1 && words[1] == own {
				return maxHops + 1, ""
			}
		}
	}
	_, version, _ := strings.Cut(r.Version, "/")
	if version == "" {
		version = "1.1"
	}
	own = version + " " + own
	if len(r.Via) > 0 {
		return n + 1, strings.Join(r.Via, ", ") + ", " + own
	}
	*last = lastHop{host: host, version: r.Version, via: own}
	return n + 1, own
}

// loopLog is the log line about loops.
type loopLog struct {
	mu   sync.Mutex
	line fleettime.Minutely[fleettime.Mono]
}

// due reports whether the line is to be written now.
func (l *loopLog) due(now fleettime.Mono) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, due := l.line.Count(now, 1)
	return due
}

// noteLoop logs that a site's address leads here, once a minute: visitors can claim it too.
func (g *Gate) noteLoop(host string, to *origin.Origin) {
	if !g.loops.due(g.Engine.clock.Now()) {
		return
	}
	g.log.Warn("a request has passed an edge for this host already: the address of the site leads back to an edge",
		slog.String("host", host), slog.String("origin", to.URL.Host))
}
