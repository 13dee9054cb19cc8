package origin

import (
	"errors"
	"strings"
)

// Sites bind a login by NTLM or Negotiate to the connection that it came on (RFC 4559, 6): whatever comes next on this
// connection acts for the same person. So after such a login, or an offer of one, a connection to a site serves one
// connection of a client only.

var (
	// ErrSharedLogin says that a login of this kind came from a trusted proxy, whose connections carry many visitors.
	ErrSharedLogin = errors.New("a login bound to a connection (NTLM, Negotiate) came through trusted_proxies, whose connections carry many visitors: have the proxy pass TCP through with a PROXY header, or the site log its visitors in by cookies")

	// ErrMultiplexedLogin says that a login of this kind came over HTTP/2, which has no connection for it.
	ErrMultiplexedLogin = errors.New("a login bound to a connection (NTLM, Negotiate) came over HTTP/2")
)

// BindsLogin reports whether an Authorization header is for a login that the site binds to a connection.
func BindsLogin(authorization string) bool {
	scheme, _, _ := strings.Cut(strings.TrimLeft(authorization, " \t"), " ")
	return strings.EqualFold(scheme, "NTLM") || strings.EqualFold(scheme, "Negotiate")
}

// OffersBinding reports whether a line of WWW-Authenticate offers such a login, beside others or not.
func OffersBinding(challenges string) bool {
	quoted, start := false, 0
	for i := 0; i <= len(challenges); i++ {
		switch {
		case i < len(challenges) && challenges[i] == '"':
			quoted = !quoted
		case i == len(challenges) || challenges[i] == ',' && !quoted:
			if BindsLogin(challenges[start:i]) {
				return true
			}
			start = i + 1
		}
	}
	return false
}
