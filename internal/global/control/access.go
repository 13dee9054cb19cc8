package control

import (
	"context"
	"net/http"
	"strings"
)

// authenticate lets requests with a valid token through.
func (s *Server) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !bearer {
			text = r.Header.Get("X-Auth-Key") // X-Auth-Email adds nothing to the key
		}
		who, err := s.tokens.check(r.Context(), Source(r.RemoteAddr), strings.TrimSpace(text), r.Method == http.MethodGet)
		if err != nil {
			if explain(err).Status == http.StatusUnauthorized {
				w.Header().Set("WWW-Authenticate", `Bearer realm="vestibule"`)
			}
			s.fail(w, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), principalKey{}, who)))
	})
}
