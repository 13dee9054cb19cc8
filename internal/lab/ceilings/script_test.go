package ceilings

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// script is a small world without chance. Its words:
//
//	elect, elect-stays  a successor leads; the predecessor ends, or goes on
//	run N               N ticks: every edge reports, every leader answers
//	want E N            edge E asks for N permits
//	admit E V, renew E V, end E V      visitor V at edge E asks to enter, goes on, or says goodbye
//	admit! E V          it has to be let in
//	cut E, mute E, deaf E, heal        the newest leader and edge E; its reports; its grants
//	cut-store, deaf-store              the newest leader and the store; the answers
//	absent E, join E                   the edge is not there yet, and begins
//	late E N, clock E N, leader-clock N   delay of reports; error of a clock
//	older, empty                       the store comes back as it was at "backup", or empty
type script struct {
	*World
	names  map[string]*visitor
	backup store
	broke  string
}

// play runs a script and returns the promise that broke.
func play(t *testing.T, cfg Config, edges int, text string) string {
	t.Helper()
	if cfg.Accounts[0].Life == 0 {
		cfg.Accounts[0].Life = 30
	}
	cfg.Lease, cfg.Allowance, cfg.LostAfter = edgeLease, max(1, cfg.Allowance), 60
	if cfg.Overlap == 0 {
		cfg.Overlap = overlap
	}
	if cfg.Lazy == 0 {
		cfg.Lazy = 1 << 30
	}
	w := newWorld(&cfg, rand.New(rand.NewPCG(1, 1)), edges)
	w.dc.lead = 1 << 30
	clear(w.dc.off)
	s := &script{World: w, names: map[string]*visitor{}}
	for _, e := range w.edges {
		e.accounts[0].want = 0
	}
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ';' || r == '\n' }) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		s.do(t, strings.Fields(line))
		if s.broke != "" {
			return s.broke
		}
	}
	return ""
}

// do runs one line.
func (s *script) do(t *testing.T, words []string) {
	t.Helper()
	x, edge := s.dc, 0
	if len(words) > 1 {
		edge, _ = strconv.Atoi(words[1])
	}
	switch words[0] {
	case "elect", "elect-stays":
		if top := x.top(); top != nil && words[0] == "elect" {
			top.stays, top.until = 0, s.now
		} else if top != nil {
			top.stays = s.cfg.Overlap
		}
		x.until = s.now
		x.elect(s.now, 0).off = 0
	case "run":
		for range edge {
			s.step()
		}
	case "want":
		n, _ := strconv.Atoi(words[2])
		s.wants[edge] = n
	case "cut":
		x.sever(x.top().term, edge)
	case "mute":
		for term := range 9 {
			x.cut[link{term, edge, false}] = true
		}
	case "deaf":
		for term := range 9 {
			x.cut[link{term, edge, true}] = true
		}
	case "cut-store":
		x.sever(x.top().term, storePeer)
	case "deaf-store":
		x.cut[link{x.top().term, storePeer, true}] = true
	case "heal":
		clear(x.cut)
	case "join":
		s.joins[edge] = s.now
	case "absent":
		s.joins[edge] = 1 << 30
	case "clock":
		n, _ := strconv.Atoi(words[2])
		x.off[edge] = Time(n)
	case "late":
		n, _ := strconv.Atoi(words[2])
		x.delay[edge] = Time(n)
	case "leader-clock":
		x.top().off = Time(edge)
	case "backup":
		s.backup = x.store.clone()
	case "older":
		x.store = s.backup.clone()
	case "empty":
		x.store = store{docs: map[Key]stored{}}
	default:
		s.visitor(t, words[0], edge, words[2])
	}
}

// visitor lets a visitor do something.
func (s *script) visitor(t *testing.T, what string, edge int, name string) {
	t.Helper()
	v := s.names[name]
	if v == nil {
		v = &visitor{name: name}
		s.names[name] = v
		s.visitors = append(s.visitors, v)
	}
	switch what {
	case "admit", "admit!":
		if ok := s.stamp(v, edge, s.edges[edge].Admit, true); !ok && what == "admit!" {
			s.broke = name + " is not let in"
		}
	case "renew":
		s.renew(v, edge, false)
	case "end":
		s.edges[edge].End(v.id, v.expiry)
	default:
		t.Fatalf("no word %q", what)
	}
	if b := s.judge.look(s.World); b != "" && s.broke == "" {
		s.broke = b
	}
}

// step is one tick.
func (s *script) step() {
	s.tick(false)
	s.now++
	if b := s.judge.look(s.World); b != "" && s.broke == "" {
		s.broke = b
	}
}
