package gate

import (
	"net/url"
	"slices"
	"strings"

	"vestibule/internal/core/room"
)

// registered are the methods of IANA's registry that pass to sites, and QUERY. CONNECT would tunnel past the decision,
// TRACE would show the visitor the edge's own headers, and PRI begins HTTP/2.
var registered = map[string]bool{
	methodGet: true, methodHead: true, methodPost: true, "PUT": true, "PATCH": true, "DELETE": true, methodOptions: true,
	"QUERY": true, "ACL": true, "BASELINE-CONTROL": true, "BIND": true, "CHECKIN": true, "CHECKOUT": true, "COPY": true,
	"LABEL": true, "LINK": true, "LOCK": true, "MERGE": true, "MKACTIVITY": true, "MKCALENDAR": true, "MKCOL": true,
	"MKREDIRECTREF": true, "MKWORKSPACE": true, "MOVE": true, "ORDERPATCH": true, "PROPFIND": true, "PROPPATCH": true,
	"REBIND": true, "REPORT": true, "SEARCH": true, "UNBIND": true, "UNCHECKOUT": true, "UNLINK": true, "UNLOCK": true,
	"UPDATE": true, "UPDATEREDIRECTREF": true, "VERSION-CONTROL": true,
}

// commonMethods is the value of Access-Control-Allow-Methods.
const commonMethods = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"

// servesMethod reports whether requests with a method pass to the site in all these rooms.
func servesMethod(method string, in []*room.Room) bool {
	return registered[method] || len(in) > 0 && room.CheckMethodName(method) == "" &&
		!slices.ContainsFunc(in, func(r *room.Room) bool { return !slices.Contains(strings.Fields(r.Methods), method) })
}

// leadsAway reports whether a request names a second path (COPY and MOVE by Destination) that may be in a room outside
// of in: a visitor of these rooms could change that one.
func (r *Request) leadsAway(rooms *snapshot, in []*room.Room) bool {
	if len(r.Destination) == 0 {
		return false
	}
	u, err := url.Parse(r.Destination[0])
	if err != nil || len(r.Destination) > 1 || u.Opaque != "" {
		return true
	}
	path := u.EscapedPath()
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	for _, host := range [...]string{r.Host, u.Host} { // the site may look at the path only
		if host == "" {
			continue
		}
		m := rooms.set.Match(host, path)
		if m.Refuse || slices.ContainsFunc(m.Rooms(), func(to *room.Room) bool { return !slices.Contains(in, to) }) {
			return true
		}
	}
	return false
}
