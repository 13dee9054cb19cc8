package room

import (
	"fmt"
	"strings"
)

// Meant returns [Suggest] as the end of an error: it begins with a comma, and is empty if no key is close.
func Meant(key string, known []string) string {
	if s := Suggest(key, known); s != "" {
		return fmt.Sprintf(", did you mean %q?", s)
	}
	return ""
}

// Suggest returns the known key that key is probably a misspelling of, "" if none is close.
func Suggest(key string, known []string) string {
	const longest = 40 // of a key worth comparing
	if len(key) > longest {
		return ""
	}
	best, most := "", 1+len(key)/6 // edits that still count as a slip
	plain := func(name string) string { return strings.ToLower(strings.ReplaceAll(name, "-", "_")) }
	for _, k := range known {
		if max(len(k)-len(key), len(key)-len(k)) > most {
			continue
		}
		if d := distance(plain(key), plain(k)); d <= most {
			best, most = k, d-1
		}
	}
	return best
}

// distance returns the number of insertions, deletions, substitutions and swaps of neighbours between a and b.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
