package control

import (
	"context"
	"net/http"
	"strings"
)

// authenticate lets requests with a valid token through.
func (t *tokens) authenticate(next http.Handler, out *envelope) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !bearer {
			text = r.Header.Get("X-Auth-Key") // X-Auth-Email adds nothing to the key
		}
		who, err := t.check(r.Context(), Source(r.RemoteAddr), strings.TrimSpace(text), r.Method == http.MethodGet)
		if err != nil {
			if explain(err).Status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", `Bearer realm="vestibule"`)
			}
			out.fail(w, err)
			return
		}
		base := "http://" + r.Host
		if r.TLS != nil {
			base = "https://" + r.Host
		}
		ctx := context.WithValue(r.Context(), previewHost{}, base)
		next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, principalKey{}, who)))
	})
}
