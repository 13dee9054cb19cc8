package wire

import (
	"testing"
	"time"

	"vestibule/internal/core/fleettime"
)

// TestAFormNeedsTheReceiversWord: a form is written to a receiver that named it within FormsFor, in its newest message.
func TestAFormNeedsTheReceiversWord(t *testing.T) {
	const a, b = Forms(1), Forms(2)
	at := func(d time.Duration) fleettime.Mono { return fleettime.Mono(0).Add(time.Hour + d) }
	for name, c := range map[string]struct {
		said []Forms // one a second
		asks Forms
		late time.Duration // since the last
		want bool
	}{
		"named":                        {[]Forms{a | b}, a, 0, true},
		"named for long enough":        {[]Forms{a}, a, FormsFor, true},
		"nothing heard":                {nil, a, 0, false},
		"nothing heard since":          {[]Forms{a}, a, FormsFor + 1, false},
		"another one":                  {[]Forms{b}, a, 0, false},
		"one of two":                   {[]Forms{b}, a | b, 0, false},
		"replaced by an older release": {[]Forms{a, 0}, a, 0, false},
		"and by a newer one":           {[]Forms{0, a}, a, 0, true},
	} {
		var r Reader
		now := at(0)
		for i, f := range c.said {
			now = at(time.Duration(i) * time.Second)
			r.Said(now, f)
		}
		if got := r.Reads(now.Add(c.late), c.asks); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
