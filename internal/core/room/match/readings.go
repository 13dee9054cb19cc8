package match

import "slices"

// Bounds of [Readings].
const (
	// MaxReadings is the maximum number of readings of one path. An ordinary path has one; a path with escapes,
	// parameters and a doubled slash has eight.
	MaxReadings = 64

	// MaxReadingBytes bounds the length of all readings of a path together,
	// so that a long hostile path costs no more than a short one.
	MaxReadingBytes = 16 << 10
)

// Readings calls yield with every interpretation of a request's path by some origin, the path itself first, until
// yield returns false. The path is the raw one of the request line, escaped and without the query.
//
// The readings are the results of any sequence of these steps: percent-decoding, with or without the escaped
// separators %2f and %5c; backslashes to slashes; dropping ;parameters; cutting at a decoded ? or #; dropping empty
// segments; resolving dot segments; folding compatibility forms of ASCII (fullwidth letters and the like) and
// dropping invisible characters; stripping the authority of a //host/path; dropping the parts of a name that
// Windows ignores (dots and spaces at the end, stream names) and the session segments of ASP.NET. Each begins with
// a slash. Letter case is kept: compare by [Fold] if an origin may ignore it.
//
// ok is false, and nothing is yielded, if the path does not begin with a slash, has a bad percent-escape, has a
// control character (also NUL) or invalid UTF-8 in some reading, or has more than [MaxReadings] readings. Such a
// path can mean anything.
func Readings(path string, yield func(reading string) bool) (ok bool) {
	if isOrdinary(path) {
		yield(path)
		return true
	}
	var buf [MaxReadings]string
	all, ok := expand(path, buf[:0])
	if !ok {
		return false
	}
	for _, r := range all {
		if !yield(r) {
			break
		}
	}
	return true
}

// isOrdinary reports quickly whether path has exactly one reading, itself.
func isOrdinary(path string) bool {
	return path != "" && path[0] == '/' && scan(path).plain()
}

// step is one transformation of a path by some origin.
type step struct {
	when  traits // the step applies only to paths with one of these traits
	apply func(string) (result string, changed bool)
}

var steps = [...]step{
	{hasPercent, decode},
	{hasPercent, decodeInside},
	{hasBackslash, slashes},
	{hasParam, dropParams},
	{hasCut, cut},
	{hasEmpty, collapse},
	{hasEmpty, dropAuthority},
	{hasDot, resolveDots},
	{hasTail | hasStream, trimNames},
	{hasSession, dropSessions},
	{hasHigh, foldCompat},
}

// expand appends to out, which must be empty, all readings of path: the
// closure of path under the steps. A closure, and not a fixed order of steps,
// because between them a proxy, a framework and a file system take the steps
// in any order and some of them twice.
func expand(path string, out []string) (_ []string, ok bool) {
	if path == "" || path[0] != '/' || !validEscapes(path) {
		return nil, false
	}
	if !Readable(path) {
		return nil, false
	}
	out = append(out, path)
	total := len(path)
	for i := 0; i < len(out); i++ {
		found := scan(out[i])
		for s := range steps {
			if found&steps[s].when == 0 {
				continue
			}
			next, changed := steps[s].apply(out[i])
			if !changed || slices.Contains(out, next) {
				continue
			}
			total += len(next)
			if len(out) == MaxReadings || total > MaxReadingBytes || !Readable(next) {
				return nil, false
			}
			out = append(out, next)
		}
	}
	return out, true
}
