package ceilings

import (
	"fmt"
	"os"
	"strconv"
	"testing"
)

func TestDebug(t *testing.T) {
	seed, _ := strconv.Atoi(os.Getenv("SEED"))
	if seed == 0 {
		t.Skip()
	}
	from, _ := strconv.Atoi(os.Getenv("FROM"))
	tr := Trial{Ticks: 160, Told: os.Getenv("TOLD") != "", Clocks: os.Getenv("CLOCKS") != "", Ends: os.Getenv("ENDS") != "", Rate: os.Getenv("RATE") != "", Serve: os.Getenv("SERVE") != "", Gone: os.Getenv("GONE") != "", Restore: os.Getenv("RESTORE") != ""}
	if r, err := ParseRule(os.Getenv("WITHOUT")); err == nil {
		tr.Without = Of(r)
	}
	w := NewWorld(uint64(seed), tr)
	fmt.Println(w, w.dc.loss, w.dc.late, w.joins, "A", w.cfg.Allowance, w.cfg.Slack, w.cfg.Lazy)
	for ; w.now < 160; w.now++ {
		w.faults()
		w.tick(true)
		for range w.rng.IntN(5) {
			w.visit(w.visitors[w.rng.IntN(len(w.visitors))], w.rng.IntN(len(w.edges)))
		}
		b := w.judge.look(w)
		if int(w.now) >= from {
			s := ""
			for _, l := range w.dc.acting(w.now) {
				s += fmt.Sprint("\n  L", l.term, " leads ", l.Leads(), " rep ", l.replaced, " W ", l.watermark, " born ", l.born, " free ", l.Free(0))
				for _, b := range l.kids {
					s += fmt.Sprintf(" | %d h%v lap%v U%d/%d until %d claim %d", b.id, b.heard, b.lapsed, b.stored(0), b.most(0), b.until, l.claim(b, 0))
					if b.heard {
						s += fmt.Sprint(" cl ", b.rep.Clock, " sent ", b.sent[0], " cr ", b.credit(0), b.rep.Lines[0].Sums)
					}
				}
			}
			fmt.Println("t", w.now, "store W", w.dc.store.docs[head].doc, "cut", w.dc.cut, s)
			for i, c := range w.edges {
				h := c.accounts[0]
				fmt.Println("   e", i, "term", c.term, "lease", c.lease, "ended", c.ended, "W", c.watermark, "credit", h.credit, "got", h.got, h.sums, "ceil", h.ceiling, "store", w.dc.store.docs[Key(i)].doc, "off", w.dc.off[i], c.ends)
			}
			s = ""
			for i, v := range w.visitors {
				if w.accepted(v) {
					s += fmt.Sprint(" ", i, ":", v.id, "@", v.expiry, "/", v.newest)
				}
			}
			fmt.Println("   in", s)
		}
		if b != "" || w.judge.Ceiling != "" {
			fmt.Println(b, w.judge.Ceiling)
			break
		}
	}
}
