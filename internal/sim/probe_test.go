package sim

import "testing"

func TestProbe(t *testing.T) {
	cfg := Defaults()
	w := New(cfg)
	var rootFree, dcFree, credit, counted, truth, n, presumed, elig float64
	end := int64(cfg.Length)
	last := int64(0)
	for {
		e, ok := w.agenda.next()
		if !ok || e.at > end || w.judge.broken() {
			break
		}
		w.now = e.at
		w.events++
		w.happen(e)
		if w.now-last > 1e8 && w.now > 10*60e9 {
			last = w.now
			n++
			root := w.global.core.Ledger(w.room)
			rootFree += float64(root.Free)
			for _, r := range w.regions {
				l := r.core.Ledger(w.room)
				dcFree += float64(l.Free)
				credit += float64(l.Credit)
				counted += float64(l.Active)
				presumed += float64(l.Presumed)
				if l.View != nil {
					elig += l.View.Line.Before(l.View.Horizon)
				}
			}
			truth += float64(w.judge.active)
		}
	}
	t.Logf("root %.2f dc %.2f credit %.2f counted-true %.2f truth %.2f presumed %.2f elig %.2f factor %.2f mu %.2f", rootFree/n, dcFree/n, credit/n, (counted-truth)/n, truth/n, presumed/n, elig/n/3, w.global.core.Pace(), 0.0)
}
