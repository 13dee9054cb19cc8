package node

import "net/http"

// HopsHeader is the number of edges that a request has passed. Every edge sets it.
const HopsHeader = "Vestibule-Hops"

// RefuseForwarded refuses requests that an edge has passed on: a listener for operators is nobody's site, whatever
// address, name or port forwarding leads there.
func RefuseForwarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, forwarded := r.Header[HopsHeader]; forwarded {
			http.Error(w, "This address is not a site.", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
