package console

import "strings"

// NewForm returns the name of a form that is shown now.
var NewForm = newForm

// Changing returns the patterns of all routes that may change something.
func Changing() (out []string) {
	for pattern := range routes {
		if !strings.HasPrefix(pattern, "GET ") && pattern != "/console/" {
			out = append(out, pattern)
		}
	}
	return out
}
