package ceilings

import (
	"fmt"
	"os"
	"strconv"
	"testing"
)

func dump(x *tier, now Time) {
	for _, l := range x.acting(now) {
		s := fmt.Sprint("     L", l.term, " leads ", l.Leads(), " rep ", l.replaced, " W ", l.watermark, " born ", l.born, " limit ", l.limits[0], " free ", l.Free(0))
		if l.up != nil {
			s += fmt.Sprint(" up{blank ", l.up.blank, " lease ", l.up.lease, " ended ", l.up.ended, " credit ", l.up.accounts[0].credit, " got ", l.up.accounts[0].got, "/", l.up.accounts[0].total, " term ", l.up.term, ".", l.up.epoch, " ceil ", l.up.accounts[0].ceiling, "}")
		}
		for _, b := range l.kids {
			s += fmt.Sprintf(" | %d i%d h%v lap%v U%d/%d until %d claim %d", b.id, b.doc.Instance, b.heard, b.lapsed, b.stored(0), b.most(0), b.until, l.claim(b, 0))
			if b.heard {
				s += fmt.Sprint(" cl ", b.rep.Clock, " sent ", b.sent[0], " cr ", b.credit(0), b.rep.Lines[0].Sums)
			}
		}
		fmt.Println(s)
	}
}
func TestDebugTree(t *testing.T) {
	seed, _ := strconv.Atoi(os.Getenv("SEED"))
	if seed == 0 {
		t.Skip()
	}
	from, _ := strconv.Atoi(os.Getenv("FROM"))
	w := NewTree(uint64(seed), Trial{Ticks: 160, Clocks: os.Getenv("CLOCKS") != ""})
	for ; w.now < w.ticks; w.now++ {
		w.faults(w.root)
		w.play(w.root)
		for _, c := range w.centres {
			w.faults(c.tier)
			w.play(c.tier)
		}
		for range w.rng.IntN(5) {
			w.visit(w.visitors[w.rng.IntN(len(w.visitors))])
		}
		b := w.look()
		if int(w.now) >= from {
			fmt.Println("t", w.now, w.root.cut)
			dump(w.root, w.now)
			for i, c := range w.centres {
				fmt.Println("   DC", i)
				dump(c.tier, w.now)
				for j, e := range c.edges {
					h := e.accounts[0]
					fmt.Println("       e", j, "term", e.term, ".", e.epoch, "lease", e.lease, "ended", e.ended, "credit", h.credit, h.got, h.total, h.sums, "ceil", h.ceiling)
				}
			}
			s := ""
			for i, v := range w.visitors {
				if v.id != 0 && v.newest > w.now+w.slowest() {
					s += fmt.Sprint(" ", i, ":", v.id, "@", v.expiry, "/", v.newest, "h", w.home[v])
				}
			}
			fmt.Println("   in", s)
		}
		if b != "" {
			fmt.Println(b)
			return
		}
	}
}
