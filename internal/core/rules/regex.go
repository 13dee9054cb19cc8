package rules

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// Bounds of an automaton: at most 48 KiB, and a few milliseconds to build.
const (
	maxCells = 16 << 10 // states times character classes
	maxSteps = 1 << 20  // of its construction
	maxInsts = 2000     // instructions of its program
)

// automaton matches a regular expression anywhere in a text. It is deterministic: each character costs one table
// look-up, whatever the expression. Package regexp may need as many steps per character as the expression is long.
type automaton struct {
	ascii  [utf8.RuneSelf]uint16 // class of each character
	starts []rune                // first characters of the ranges beyond ASCII
	class  []uint16              // classes of those ranges
	width  int                   // number of classes
	next   []uint16              // by state and class: the next state, or accept
	atEnd  []bool                // by state: a text that ends here matches
}

const accepted = ^uint16(0)

func newAutomaton(text string, fold bool) (*automaton, string) {
	flags := syntax.Perl
	if fold {
		flags |= syntax.FoldCase
	}
	parsed, err := syntax.Parse(text, flags)
	if err != nil {
		return nil, "a regular expression that is not understood: " + err.Error()
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, "a regular expression that is not understood: " + err.Error()
	}
	if len(prog.Inst) > maxInsts {
		return nil, fmt.Sprintf("a regular expression of %d steps, at most %d are allowed: shorten its repetitions",
			len(prog.Inst), maxInsts)
	}
	b := builder{prog: prog, a: &automaton{}, index: map[string]int{}, mark: make([]int, len(prog.Inst))}
	if !b.classes() || !b.run() {
		return nil, "a regular expression that needs too many states: shorten its repetitions and alternatives"
	}
	return b.a, ""
}

func (a *automaton) classOf(r rune) uint16 {
	if r < utf8.RuneSelf {
		return a.ascii[r]
	}
	i, found := slices.BinarySearch(a.starts, r)
	if !found {
		i--
	}
	return a.class[i]
}

func (a *automaton) match(s string) bool {
	state := 0
	for i := 0; i < len(s); {
		var class uint16
		if c := s[i]; c < utf8.RuneSelf {
			class = a.ascii[c]
			i++
		} else {
			r, n := utf8.DecodeRuneInString(s[i:])
			class = a.classOf(r)
			i += n
		}
		next := a.next[state*a.width+int(class)]
		if next == accepted {
			return true
		}
		state = int(next)
	}
	return a.atEnd[state]
}

// builder builds an automaton of a program by the subset construction. A state is a set of instructions, before
// empty-width assertions are resolved, and the kind of the previous character.
type builder struct {
	prog   *syntax.Prog
	a      *automaton
	sample []rune // one character of each class
	index  map[string]int
	sets   []set
	mark   []int // by instruction: the last closure that visited it
	round  int
	steps  int
}

type set struct {
	insts []uint32
	prev  rune // any character of the same kind, -1 at the start
}

// classes groups the characters that no instruction distinguishes.
func (b *builder) classes() bool {
	cuts := []rune{0, '\n', '\n' + 1, '0', '9' + 1, 'A', 'Z' + 1, '_', '_' + 1, 'a', 'z' + 1, utf8.RuneSelf}
	for i := range b.prog.Inst {
		in := &b.prog.Inst[i]
		switch in.Op {
		case syntax.InstRune, syntax.InstRune1:
			if len(in.Rune) == 1 {
				cuts = append(cuts, in.Rune[0], in.Rune[0]+1)
				for f := unicode.SimpleFold(in.Rune[0]); f != in.Rune[0]; f = unicode.SimpleFold(f) {
					cuts = append(cuts, f, f+1)
				}
				continue
			}
			for j := 0; j < len(in.Rune); j += 2 {
				cuts = append(cuts, in.Rune[j], in.Rune[j+1]+1)
			}
		default: // it takes every character alike, or none
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	known := map[string]uint16{}
	sign := make([]byte, len(b.prog.Inst)+1)
	for n, from := range cuts {
		if from > unicode.MaxRune {
			break
		}
		if b.steps += len(sign); b.steps > maxSteps {
			return false
		}
		sign[len(b.prog.Inst)] = kind(from)
		for i := range b.prog.Inst {
			sign[i] = 0
			if in := &b.prog.Inst[i]; takes(in, from) {
				sign[i] = 1
			}
		}
		class, ok := known[string(sign)]
		if !ok {
			class = uint16(len(known))
			known[string(sign)] = class
			b.sample = append(b.sample, from)
		}
		if from >= utf8.RuneSelf {
			b.a.starts, b.a.class = append(b.a.starts, from), append(b.a.class, class)
			continue
		}
		to := rune(utf8.RuneSelf)
		if n+1 < len(cuts) {
			to = min(to, cuts[n+1])
		}
		for r := from; r < to; r++ {
			b.a.ascii[r] = class
		}
	}
	b.a.width = len(known)
	return true
}

// kind is the property of a character that empty-width assertions depend on.
func kind(r rune) byte {
	switch {
	case r < 0:
		return 0
	case r == '\n':
		return 1
	case syntax.IsWordChar(r):
		return 2
	}
	return 3
}

func takes(in *syntax.Inst, r rune) bool {
	switch in.Op {
	case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
		return in.MatchRune(r)
	default:
		return false
	}
}

// run builds all states, the start state first.
func (b *builder) run() bool {
	start := uint32(b.prog.Start)
	b.state(set{[]uint32{start}, -1})
	for i := 0; i < len(b.sets); i++ {
		from := b.sets[i]
		_, matches := b.closure(from, -1)
		b.a.atEnd = append(b.a.atEnd, matches)
		for _, r := range b.sample {
			consumers, matches := b.closure(from, r)
			if b.steps > maxSteps {
				return false
			}
			if matches {
				b.a.next = append(b.a.next, accepted)
				continue
			}
			next := set{insts: []uint32{start}, prev: r}
			for _, in := range consumers {
				if takes(&b.prog.Inst[in], r) {
					next.insts = append(next.insts, b.prog.Inst[in].Out)
				}
			}
			slices.Sort(next.insts)
			next.insts = slices.Compact(next.insts)
			b.a.next = append(b.a.next, uint16(b.state(next)))
			if len(b.sets)*b.a.width > maxCells {
				return false
			}
		}
	}
	return true
}

// state returns the number of a state, and creates it if it is new.
func (b *builder) state(s set) int {
	key := make([]byte, 0, 1+2*len(s.insts))
	key = append(key, kind(s.prev))
	for _, in := range s.insts {
		key = append(key, byte(in), byte(in>>8))
	}
	i, ok := b.index[string(key)]
	if !ok {
		i = len(b.sets)
		b.index[string(key)] = i
		b.sets = append(b.sets, s)
	}
	return i
}

// closure returns the closure of a state before the character next, -1 at the end: the instructions that consume a
// character, and whether the text matches here.
func (b *builder) closure(s set, next rune) (consumers []uint32, matches bool) {
	flags := syntax.EmptyOpContext(s.prev, next)
	b.round++
	stack := slices.Clone(s.insts)
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if b.mark[i] == b.round {
			continue
		}
		b.mark[i] = b.round
		b.steps++
		switch in := &b.prog.Inst[i]; in.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			stack = append(stack, in.Out, in.Arg)
		case syntax.InstCapture, syntax.InstNop:
			stack = append(stack, in.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(in.Arg)&^flags == 0 {
				stack = append(stack, in.Out)
			}
		case syntax.InstMatch:
			return nil, true
		case syntax.InstFail:
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			consumers = append(consumers, i)
		}
	}
	return consumers, false
}
