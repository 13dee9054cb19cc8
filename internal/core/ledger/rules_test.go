package ledger_test

import (
	"bufio"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// The rules of the hard limit (docs/GUARANTEES.md), as stories in the language of the scripts. The messages between
// nodes are not written down: a story passes if the judge finds no broken promise. Each fails without its rule; `make
// mutants` removes the rules one by one to check that.

// scenario plays one. After every step the judge has to be content.
func scenario(t *testing.T, text string) *world {
	t.Helper()
	s := &script{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		cmd, args, err := datadriven.ParseLine(line)
		if err != nil {
			t.Fatalf("line %d: %v", n, err)
		}
		s.do(t, &datadriven.TestData{Cmd: cmd, CmdArgs: args})
		if s.w.oracle.broken != "" {
			t.Fatalf("line %d (%s): broken: %s", n, line, s.w.oracle.broken)
		}
	}
	return s.w
}

// scenarios plays stories that have nothing to do with each other.
func scenarios(t *testing.T, all map[string]string) {
	for name, text := range all {
		t.Run(name, func(t *testing.T) { scenario(t, text) })
	}
}

// An edge admits only with a permit in hand, under a valid lease, charging it in the same step.
func TestRule1ARightInHandUnderALeaseInOneStep(t *testing.T) {
	scenarios(t, map[string]string{
		"more visitors than permits": `
			fleet total=10 rate=60 edges=2
			advance 2s
			arrive d1 n=12
			arrive d2 n=12
			advance 5s`,
		"more visitors than R": `
			fleet total=50 rate=6 edges=2
			advance 2s
			arrive d1 n=12
			arrive d2 n=12
			advance 5s`,
		"R in every window": `
			fleet total=50 rate=6 session=20s edges=2
			advance 2s
			arrive d1 n=12
			advance 70s
			advance 70s`,
		"a lease that has ended": `
			fleet total=10 rate=60 edges=2 policy=cap
			advance 2s
			arrive d1 bob
			advance 2s
			cut d1
			advance 4s # the permits of d1 are counted as spent, and those of R come back in time
			arrive d1 ann
			advance 70s`,
		"an answer that was long under way": `
			fleet total=10 rate=60 edges=2 policy=cap
			advance 2s
			arrive d1 bob
			advance 2s
			catch d1 down
			advance 1100ms
			cut d1 up
			advance 900ms
			deliver d1 down
			advance 2800ms # by the report that was answered, the lease has ended long ago
			arrive d1 ann
			advance 70s`,
	})
}

// The renewals that an edge has not reported are limited in advance.
func TestRule2UnreportedRenewalsAreBounded(t *testing.T) {
	scenario(t, `
		fleet total=40 rate=600 session=10s edges=2 policy=cap
		advance 2s
		arrive d1 n=20
		advance 3s clicking=3s
		cut d1 up
		advance 2500ms clicking=300ms # everybody inside asks to be renewed
		advance 20s`)
}

// After an edge's lease lapses its possible admissions count until they would have expired, or until its final report
// replaces the guess.
func TestRule3ReservedSpent(t *testing.T) {
	scenarios(t, map[string]string{
		"a permit given away without a report": `
			fleet total=20 rate=120 edges=2 policy=cap
			advance 2s
			arrive d1 n=6
			advance 2s clicking=10s
			cut d1 up
			arrive d1 ann
			advance 4s
			arrive d2 n=20
			advance 5s`,
		"permits of R": `
			fleet total=60 rate=60 edges=2 policy=cap
			advance 2s
			arrive d1 n=4
			advance 2s
			crash d1
			advance 4s
			arrive d2 n=80
			advance 5s`,
		"what was reserved outlives the aggregator": `
			fleet total=10 rate=60 session=30s edges=2 policy=cap
			advance 2s
			arrive d1 n=4
			advance 1s
			cut d1 up
			arrive d1 ann
			crash d1
			advance 5s
			start dublin
			advance 2s
			arrive d2 n=10
			advance 5s`,
		"a final word that comes late": `
			fleet total=10 rate=60 session=5s edges=2
			advance 2s
			arrive d1 n=4
			advance 3s clicking=1s
			cut d1 down
			catch d1 up
			advance 5s # its lease has ended, and it says so
			deliver d1 up later=10s
			cut d1 up
			advance 30s`,
	})
}

// A second is freed only after every live edge has reported a time at which its own clock refuses tickets of it.
func TestRule4NothingIsFreedByAClockAlone(t *testing.T) {
	scenarios(t, map[string]string{
		"renewed at the last moment, and not reported": `
			fleet total=4 rate=60 session=10s policy=cap
			advance 2s
			arrive d1 ann # until the 13th second
			advance 9s
			catch d1 up
			advance 1s
			click ann
			advance 2s`,
		"more renewed away than stamped": `
			fleet total=20 rate=120 edges=2
			advance 2s
			arrive d1 n=6
			arrive d2 n=2
			advance 20s clicking=5s
			cut d1
			advance 2m
			arrive d2 n=20
			advance 3s
			mend d1
			advance 1s
			crash d1
			advance 10s
			start d1
			advance 82s`,
	})
}

// A ticket from another data centre is served without renewal.
func TestRule7AwayFromHomeNothingIsRenewed(t *testing.T) {
	scenario(t, `
		fleet total=4 rate=60 session=10s centres=dublin,nairobi policy=cap
		advance 2s
		arrive d1 ann # until the 13th second
		advance 9s
		click ann at=n1
		advance 5s
		arrive d1 n=4
		arrive n1 n=4
		advance 3s`)
}

// A session that moves takes a permit of its new home. A session permit is free only when no edge renews or accepts
// its session.
func TestRule7MovesAndGoodbyes(t *testing.T) {
	scenarios(t, map[string]string{
		"who moves takes a permit": `
			fleet total=2 rate=60 session=1m centres=dublin,nairobi policy=cap
			advance 2s
			arrive d1 ann bob
			advance 10s
			cut dublin # its home does not answer
			click ann at=n1
			advance 6s
			click ann
			advance 1s`,
		"the old home forgets when its edges know": `
			fleet total=4 rate=60 session=1m edges=2 centres=dublin,nairobi policy=cap
			advance 2s
			arrive d1 ann
			advance 10s
			click ann at=n1
			advance 1s
			click ann
			advance 2500ms
			catch d2 down # it does not hear of it, and is leased for a moment yet
			advance 1500ms
			copy ann at=d1
			advance 10ms
			click ann at=d2
			advance 1s`,
		"its old home does not renew it on its way": `
			fleet total=2 rate=60 session=1m edges=2 centres=dublin,nairobi policy=cap
			advance 2s
			arrive d1 ann bob
			advance 10s
			cut nairobi down # its asks are heard
			click ann at=n1
			advance 3s
			click ann at=d2
			advance 2s
			mend nairobi down
			advance 3s`,
		"its old home forgets everything": `
			fleet total=2 rate=60 session=1m edges=2 centres=dublin,nairobi policy=cap
			advance 2s
			arrive d1 ann bob
			advance 10s
			click ann at=n1
			advance 5s
			crash d1
			crash d2
			start dublin
			advance 100ms
			start d1 empty
			start d2 empty
			advance 9s
			click ann at=d1 # with her old ticket
			advance 2s`,
		"who left is accepted nowhere": `
			fleet total=2 rate=60 session=1m centres=dublin,nairobi policy=cap
			advance 2s
			arrive d1 ann
			advance 5s
			cut n1 down
			quit ann
			advance 8s`,
		"who moved and left has an older ticket": `
			fleet total=2 rate=60 session=1m edges=2 centres=dublin,nairobi policy=cap
			advance 2s
			arrive d1 ann
			advance 10s
			click ann at=n1
			advance 1s
			click ann
			advance 6s
			arrive d1 bob
			advance 2s
			quit ann
			advance 8s
			arrive d1 cid
			advance 3s`,
	})
}
