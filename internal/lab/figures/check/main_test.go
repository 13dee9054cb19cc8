package main

import (
	"io"
	"strings"
	"testing"
)

func TestFiguresOfScripts(t *testing.T) {
	for text, ok := range map[string]bool{
		"lighthouse: accessibility=100\nlighthouse: best practices=100\n": true,
		"lighthouse: accessibility=99\n":                                  false,
		"lighthouse: accessibility=\n":                                    false,
		"nobody's=1\n":                                                    false,
		"":                                                                false,
	} {
		if err := run(strings.NewReader(text), io.Discard); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
