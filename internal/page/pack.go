package page

import (
	"math"
	"math/bits"
	"slices"
)

// pack is the fixed text of a page as DEFLATE (RFC 1951): one block with precompressed texts between the variables,
// and one code that has a word for every byte, so that a visitor's values can be inserted. It is immutable.
type pack struct {
	code  code
	head  []byte // the start of every page: gzip header, block header, and the whole bytes of the first text
	rest  run    // of the first text
	texts []packed

	even   bool       // the words of all digits have the same length
	digits [10]uint16 // their difference to the word of 0
}

// opens reports whether the first text is in head: it has no copies from others.
func (p *pack) opens() bool { return len(p.texts) > 0 && p.texts[0].opens }

// packed is one text.
type packed struct {
	text []byte
	ops  []op
	tail run
	bits int // upper bound
	sum  sum

	opens bool // the start of every page
}

// op is a write: bits, then a copy of earlier output. The distance of the copy depends on the length of the
// variables between.
type op struct {
	bits   run
	at     int32 // where in this text the copy begins
	end    int32
	from   int32 // its source in the other text
	of     int32 // the other text
	length word32
	short  word32 // the bits and the length in one, if few; otherwise n is 0
}

// run is a run of bits, the first in the lowest bit of the first word.
type run struct {
	words []uint64
	last  uint64 // its lowest n bits follow; the others are zero
	n     uint   // fewer than 64
}

// bits returns the number of bits.
func (r *run) bits() int { return 64*len(r.words) + int(r.n) }

// code is the encoding of literals, lengths and distances.
type code struct {
	lit  [286]word
	dist [30]word
}

// word is the bits of one symbol.
type word struct {
	bits uint16
	n    uint8
}

// word32 is a word with its extra bits.
type word32 struct {
	bits uint32
	n    uint8
}

// maxShort is the maximum number of bits before a distance for which all can be written at once.
const maxShort = maxPut - maxBits - 13

// shorten sets short.
func (o *op) shorten() {
	if n := o.bits.n + uint(o.length.n); len(o.bits.words) == 0 && n <= maxShort {
		o.short = word32{uint32(o.bits.last) | o.length.bits<<o.bits.n, uint8(n)}
	}
}

// length returns the encoding of a length.
func (c *code) length(length int) word32 {
	symbol, extra, n := lengthSymbol(length)
	x := c.lit[symbol]
	return word32{uint32(x.bits) | extra<<x.n, x.n + uint8(n)}
}

// endOfBlock is the symbol that ends a block.
const endOfBlock = 256

const (
	minCopy  = 3
	maxCopy  = 258
	maxReach = 32 << 10

	// slack is how much longer than expected the variables between two texts may be.
	slack = 2 << 10
)

// lengthSymbol returns the symbol of a length and its extra bits.
func lengthSymbol(length int) (symbol int, extra uint32, n uint) {
	switch l := length - minCopy; {
	case length == maxCopy:
		return 285, 0, 0
	case l < 8:
		return 257 + l, 0, 0
	default:
		n = uint(bits.Len(uint(l)) - 3)
		return 257 + 4*int(n) + l>>n, uint32(l & (1<<n - 1)), n
	}
}

// distSymbol returns the symbol of a distance and its extra bits.
func distSymbol(dist int) (symbol int, extra uint32, n uint) {
	d := dist - 1
	if d < 4 {
		return d, 0, 0
	}
	n = uint(bits.Len(uint(d)) - 2)
	return 2*int(n) + d>>n, uint32(d & (1<<n - 1)), n
}

// source is a text to compress. Other texts do not copy from an optional one.
type source struct {
	text   string
	always bool
	opens  bool // the page begins with it
}

// effort is the time spent on compression, and its goal.
type effort struct {
	chain, rounds int
	even          bool // give all digits words of one length
}

var (
	forEverybody = effort{chain: 400, rounds: 6, even: true} // 39 pages, once each
	forOne       = effort{chain: 16, rounds: 2}              // a page of an operator, up to 1 MiB
)

// newPack compresses texts. sample is typical text between them.
func newPack(texts []source, sample []byte, e effort) *pack {
	p := &packer{texts: texts, effort: e, gap: len(sample) / max(1, len(texts))}
	p.find()
	var counts symbols
	for round := range e.rounds {
		p.costs(&counts, round == 0)
		counts = symbols{}
		for _, b := range sample {
			counts.lit[b]++
		}
		p.parse(&counts)
	}
	counts.lit[endOfBlock]++
	return p.write(&counts)
}

// symbols counts the uses of each symbol.
type symbols struct {
	lit  [286]int
	dist [30]int
}

// packer compresses the texts of a page.
type packer struct {
	effort
	texts []source
	gap   int // assumed length of a variable

	all   []byte
	owner []int32 // the text of each byte
	start []int   // start of each text
	found [][]copied
	way   []copied // by end position: the last step on the cheapest way there

	litCost  [286]float32
	distCost [30]float32
}

// copied is a copy; length 1 is a literal.
type copied struct {
	length int32
	from   int32
}

// find looks for copies: at each position the nearest source of each length.
func (p *packer) find() {
	for i, t := range p.texts {
		p.start = append(p.start, len(p.all))
		p.all = append(p.all, t.text...)
		for range len(t.text) {
			p.owner = append(p.owner, int32(i))
		}
	}
	p.found, p.way = make([][]copied, len(p.all)), make([]copied, len(p.all)+1)
	newest, older := map[[minCopy]byte]int32{}, make([]int32, len(p.all))
	for at := range len(p.all) - minCopy + 1 {
		key := [minCopy]byte(p.all[at:])
		q, known := newest[key]
		if newest[key] = int32(at); !known {
			q = -1
		}
		older[at] = q
		best := int32(minCopy - 1)
		for range p.chain {
			if q < 0 || p.distance(at, int(q)) > maxReach-slack {
				break
			}
			if n := p.commonLength(at, int(q)); n > best {
				p.found[at] = append(p.found[at], copied{n, q})
				if best = n; n == maxCopy {
					break
				}
			}
			q = older[q]
		}
	}
}

// distance is the assumed distance between two positions.
func (p *packer) distance(at, from int) int {
	return at - from + int(p.owner[at]-p.owner[from])*p.gap
}

// commonLength returns the length of the common text. A copy does not cross the end of a text.
func (p *packer) commonLength(at, from int) int32 {
	i, j := p.owner[at], p.owner[from]
	end := p.start[i] + len(p.texts[i].text)
	n := min(end-at, maxCopy)
	if i != j {
		if !p.texts[j].always {
			return 0
		}
		n = min(n, p.start[j]+len(p.texts[j].text)-from)
	}
	for k := range n {
		if p.all[at+k] != p.all[from+k] {
			return int32(k)
		}
	}
	return int32(n)
}

// costs sets the cost of symbols in bits from their frequencies.
func (p *packer) costs(counts *symbols, first bool) {
	if first {
		for i := range p.litCost {
			p.litCost[i] = 6 + float32(i/256)
		}
		for i := range p.distCost {
			p.distCost[i] = 5
		}
		return
	}
	entropy := func(counts []int, costs []float32) {
		sum := 0
		for _, n := range counts {
			sum += n
		}
		for i, n := range counts {
			costs[i] = float32(math.Log2(float64(sum+1) / max(0.5, float64(n))))
		}
	}
	entropy(counts.lit[:], p.litCost[:])
	entropy(counts.dist[:], p.distCost[:])
}

// parse finds the cheapest way through each text and counts its symbols.
func (p *packer) parse(counts *symbols) {
	cost := make([]float32, len(p.all)+1)
	for i, t := range p.texts {
		from, to := p.start[i], p.start[i]+len(t.text)
		for at := from + 1; at <= to; at++ {
			cost[at] = math.MaxFloat32
		}
		cost[from] = 0
		for at := from; at < to; at++ {
			if c := cost[at] + p.litCost[p.all[at]]; c < cost[at+1] {
				cost[at+1], p.way[at+1] = c, copied{1, 0}
			}
			length := minCopy
			for _, f := range p.found[at] {
				ds, _, dn := distSymbol(p.distance(at, int(f.from)))
				far := cost[at] + p.distCost[ds] + float32(dn)
				for ; length <= int(f.length); length++ {
					ls, _, ln := lengthSymbol(length)
					if c := far + p.litCost[ls] + float32(ln); c < cost[at+length] {
						cost[at+length], p.way[at+length] = c, copied{int32(length), f.from}
					}
				}
			}
		}
		// The steps are stored by their end; store them by their start.
		var step copied
		for at := to; at > from; at -= int(step.length) {
			step = p.way[at]
		}
		p.reverseSteps(from, to)
		for at := from; at < to; at += int(p.way[at].length) {
			if s := p.way[at]; s.length == 1 {
				counts.lit[p.all[at]]++
			} else {
				ls, _, _ := lengthSymbol(int(s.length))
				ds, _, _ := distSymbol(p.distance(at, int(s.from)))
				counts.lit[ls]++
				counts.dist[ds]++
			}
		}
	}
}

// reverseSteps stores the steps in way by their start.
func (p *packer) reverseSteps(from, to int) {
	next := p.way[to]
	for at := to; at > from; {
		at -= int(next.length)
		p.way[at], next = next, p.way[at]
	}
}

// write writes the texts by the way found.
func (p *packer) write(counts *symbols) *pack {
	out := &pack{}
	lit, dist := lengths(counts.lit[:], 256), lengths(counts.dist[:], len(counts.dist))
	if p.even {
		lit, out.even = evenDigits(counts.lit[:])
	}
	words(out.code.lit[:], lit)
	for n := range out.digits {
		out.digits[n] = out.code.lit['0'].bits ^ out.code.lit['0'+n].bits
	}
	words(out.code.dist[:], dist)
	var w bitWriter
	w.reserve(8 * 512)
	for _, b := range gzipHead {
		w.put(uint64(b), 8)
	}
	writeHeader(&w, lit, dist)
	if len(p.texts) == 0 || !p.texts[0].opens {
		out.head, out.rest = w.bytes()
	}
	for i, t := range p.texts {
		x := packed{text: []byte(t.text), sum: newSum([]byte(t.text)), opens: t.opens}
		for at := p.start[i]; at < p.start[i]+len(t.text); {
			s := p.way[at]
			w.reserve(maxCopyBits)
			switch j := p.owner[s.from]; {
			case s.length == 1:
				w.word(out.code.lit[p.all[at]])
			case int(j) == i:
				length := out.code.length(int(s.length))
				w.copy(&out.code, &length, at-int(s.from))
			default:
				o := op{w.take(), int32(at - p.start[i]), int32(at-p.start[i]) + s.length, s.from - int32(p.start[j]), j, out.code.length(int(s.length)), word32{}}
				o.shorten()
				x.ops = append(x.ops, o)
				x.bits += o.bits.bits() + maxCopyBits
			}
			at += int(s.length)
		}
		if t.opens {
			out.head, out.rest = w.bytes()
		}
		x.tail = w.take()
		x.bits += x.tail.bits()
		out.texts = append(out.texts, x)
	}
	return out
}

// Maximum lengths of words and copies, in bits.
const (
	maxBits     = 15
	maxCopyBits = 2*maxBits + 5 + 13
)

// lengths returns the word length of each symbol by its frequency (Huffman). The first all symbols always have a
// word.
func lengths(counts []int, all int) []uint8 {
	type node struct{ count, left, right int }
	for scale := 1 << 10; ; scale >>= 1 { // frequency ratio to unused symbols; smaller if words are too long
		var nodes []node
		var open []int // nodes without a parent, by count, the greatest first
		for i, n := range counts {
			nodes = append(nodes, node{n*scale + 1, -1, -1})
			if n > 0 || i < all {
				open = append(open, i)
			}
		}
		slices.SortStableFunc(open, func(a, b int) int { return nodes[b].count - nodes[a].count })
		for len(open) > 1 {
			a, b := open[len(open)-1], open[len(open)-2]
			nodes = append(nodes, node{nodes[a].count + nodes[b].count, a, b})
			open = open[:len(open)-2]
			sum := nodes[len(nodes)-1].count
			at, _ := slices.BinarySearchFunc(open, sum, func(i, sum int) int { return sum - nodes[i].count })
			open = slices.Insert(open, at, len(nodes)-1)
		}
		out := make([]uint8, len(counts))
		longest := 0
		var walk func(i, depth int)
		walk = func(i, depth int) {
			if nodes[i].left < 0 {
				out[i] = uint8(max(1, depth))
				longest = max(longest, depth)
				return
			}
			walk(nodes[i].left, depth+1)
			walk(nodes[i].right, depth+1)
		}
		walk(open[0], 0)
		if longest <= maxBits {
			return out
		}
		if scale == 1 { // still too long: reduce the differences between used symbols
			counts = slices.Clone(counts)
			for i := range counts {
				counts[i] = (counts[i] + 1) / 2
			}
			scale = 2
		}
	}
}

// evenDigits is lengths for literals with words of one length for all digits. It returns false if there is no such
// code.
func evenDigits(counts []int) (out []uint8, even bool) {
	counts, sum := slices.Clone(counts), 0
	for _, n := range counts['0' : '9'+1] {
		sum += n
	}
	for i := '0'; i <= '9'; i++ {
		counts[i] = sum / 10 // so they mostly differ by one bit
	}
	out = lengths(counts, 256)
	const one = 1 << maxBits
	digits := out['0' : '9'+1]
	longest, spare := slices.Max(digits), 0
	for i, n := range digits {
		spare += one>>n - one>>longest
		digits[i] = longest
	}
	var others []int
	for i, n := range out {
		if n > 0 && (i < '0' || i > '9') {
			others = append(others, i)
		}
	}
	// The unused rest goes to the most frequent symbols.
	slices.SortStableFunc(others, func(a, b int) int { return counts[b] - counts[a] })
	for _, i := range others {
		for out[i] > 1 && one>>out[i] <= spare {
			spare -= one >> out[i]
			out[i]--
		}
	}
	if spare != 0 {
		return lengths(counts, 256), false
	}
	return out, true
}

// words assigns the words of given lengths in DEFLATE order.
func words(out []word, lengths []uint8) {
	next := uint16(0)
	for n := uint8(1); n <= maxBits; n++ {
		for i, l := range lengths {
			if l == n {
				out[i] = word{bits.Reverse16(next) >> (16 - n), n}
				next++
			}
		}
		next <<= 1
	}
}

// headerOrder is the order in which a block header lists the lengths of the code length code.
var headerOrder = [19]int{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

// writeHeader writes the header of the only block: the lengths of all words.
func writeHeader(w *bitWriter, lit, dist []uint8) {
	const again, zeros = 16, 18
	type told struct {
		symbol int
		extra  uint32
		n      uint
	}
	var all []told
	counts := make([]int, len(headerOrder))
	tell := func(t told) {
		all = append(all, t)
		counts[t.symbol]++
	}
	list := append(slices.Clone(lit), dist...)
	for i := 0; i < len(list); {
		same := 1
		for i+same < len(list) && list[i+same] == list[i] {
			same++
		}
		switch n := min(same-1, 6); {
		case list[i] == 0 && same >= 11:
			same = min(same, 138)
			tell(told{zeros, uint32(same - 11), 7})
		case n >= 3 && list[i] > 0:
			tell(told{symbol: int(list[i])})
			tell(told{again, uint32(n - 3), 2})
			same = n + 1
		default:
			tell(told{symbol: int(list[i])})
			same = 1
		}
		i += same
	}
	short := shortLengths(counts)
	var by [19]word
	words(by[:], short)
	w.put(1|2<<1, 3) // the last block, with dynamic words
	w.put(uint64(len(lit)-257), 5)
	w.put(uint64(len(dist)-1), 5)
	w.put(uint64(len(headerOrder)-4), 4)
	for _, s := range headerOrder {
		w.put(uint64(short[s]), 3)
	}
	for _, t := range all {
		w.word(by[t.symbol])
		w.put(uint64(t.extra), t.n)
	}
}

// shortLengths is lengths for words of up to seven bits.
func shortLengths(counts []int) []uint8 {
	for {
		out := lengths(counts, 0)
		if slices.Max(out) <= 7 {
			return out
		}
		for i, n := range counts {
			counts[i] = (n + 1) / 2
		}
	}
}
