package console

import (
	"html/template"
	"strings"
)

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

// Break makes a screen fail.
func (c *Console) Break(screen string) {
	c.screens[screen] = template.Must(template.New("layout").Parse("{{.None}}"))
}
