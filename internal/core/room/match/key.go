package match

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxPath bounds the path of a route, in bytes as written.
const MaxPath = 1024

// soleReading reports whether path has exactly one reading, itself.
func soleReading(path string) bool {
	n := 0
	ok := Readings(path, func(string) bool {
		n++
		return n == 1
	})
	return ok && n == 1
}

// Key returns the path of a route in the form of a [Table]: percent-decoded, without a slash at the end. A room's
// path must mean the same to every origin, so that its extent is unambiguous: once decoded it has exactly one
// reading. rule is the violated rule, or "".
func Key(path string) (key, rule string) {
	switch {
	case !strings.HasPrefix(path, "/"):
		return "", "must begin with a slash" + got(path)
	case len(path) > MaxPath:
		return "", fmt.Sprintf("must be at most %d bytes, got %d", MaxPath, len(path))
	}
	if i := strings.IndexAny(path, `?#*;\`); i >= 0 {
		return "", fmt.Sprintf("must not contain %q: a room covers its path and everything below it", path[i:i+1])
	}
	if !validEscapes(path) {
		return "", "must have two hexadecimal digits after each percent sign" + got(path)
	}
	key, _ = unescape(path, true) // an escaped separator stays, and is rejected below
	switch {
	case !Readable(key):
		return "", "must be UTF-8 without control characters" + got(path)
	case strings.Contains(key, "//"):
		return "", "must not contain an empty segment (//)" + got(path)
	}
	if key != "/" {
		key = strings.TrimSuffix(key, "/")
	}
	if _, changed := foldCompat(key); changed {
		return "", "must not contain invisible characters or compatibility forms of ASCII" + got(path)
	}
	if strings.ContainsAny(key, `%?#*;\`) || !soleReading(key) {
		return "", "must be plain: no dot segments, no segment that ends in a dot or a space, " +
			"no escaped slash, backslash, percent sign or other delimiter" + got(path)
	}
	return key, ""
}

// got quotes a rejected path, shortened, for the end of a rule.
func got(path string) string {
	const most = 80
	if len(path) > most {
		path = path[:most] + "…"
	}
	return ", got " + strconv.Quote(path)
}
