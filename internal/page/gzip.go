package page

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"slices"
	"strings"
)

// Packer writes a page with gzip. The zero value is ready. One goroutine at a time uses it, for any number of
// pages.
//
// It does no compression per visitor. The fixed texts of a page are compressed once, and copy from each other across
// values; a visitor's values are written as literals and never matched against other data. So the length of the result
// reveals only their lengths.
type Packer struct {
	pack   *pack
	plain  []byte // buffer: the page without the texts that are blocks
	marks  []mark
	places []int // of the texts in the page
}

// mark is the position of a text in a page.
type mark struct{ at, text int }

// gzipHead is a gzip header: no name, no time, any system.
const gzipHead = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"

// begin starts a page. It returns the buffer for a visitor's values, to which [Packer.text] adds a text.
func (p *Packer) begin(t *pack) (plain []byte) {
	p.pack, p.marks = t, append(p.marks[:0], mark{})
	return p.plain[:0]
}

// text adds one of the texts.
func (p *Packer) text(plain []byte, i int) []byte {
	p.marks = append(p.marks, mark{len(plain), i + 1})
	if t := &p.pack.texts[i+1]; t.blocks == "" {
		plain = append(plain, t.text...)
	}
	return plain
}

// end appends the page to dst.
func (p *Packer) end(dst, plain []byte) []byte {
	p.plain = plain
	p.marks = append(p.marks, mark{at: len(plain)})
	p.places = append(p.places[:0], p.pack.nowhere...)
	dst = append(dst, gzipHead...)
	w := bitWriter{dst: dst, at: len(dst)}
	w.reserve(maxBits*len(plain) + p.pack.bits)
	code := &p.pack.code
	open, size := false, 0
	sum, at := uint32(0), 0 // the checksum is that of the page before plain[at]
	for i, m := range p.marks[:len(p.marks)-1] {
		values := plain[m.at:p.marks[i+1].at]
		t := &p.pack.texts[m.text]
		p.places[m.text] = size
		if t.blocks != "" {
			if open { // pad to bytes by an empty stored block
				open = false
				w.word(code[endOfBlock])
				w.pad()
			}
			w.bytes(t.blocks)
			if size == 0 {
				sum = t.sum
			} else {
				sum = crc32.Update(crc32.Update(sum, crc32.IEEETable, plain[at:m.at]), crc32.IEEETable, t.text)
			}
			size += len(t.text)
			at = m.at
		}
		if len(values) == 0 {
			continue
		}
		if !open {
			open = true
			w.packed(code, &p.pack.open, 0, nil)
		}
		if t.blocks == "" {
			w.packed(code, t, size, p.places)
			values = values[len(t.text):]
			size += len(t.text)
		}
		w.literals(code, values)
		size += len(values)
	}
	if open {
		w.word(code[endOfBlock])
	}
	w.put(1|1<<1, 3+7) // the last block, empty
	dst = binary.LittleEndian.AppendUint32(w.align(), crc32.Update(sum, crc32.IEEETable, plain[at:]))
	return binary.LittleEndian.AppendUint32(dst, uint32(size))
}

// pack is the fixed texts of a page, compressed. It is immutable.
type pack struct {
	code    code
	open    packed   // the header of a block with this code
	bits    int      // upper bound, without literals
	texts   []packed // after an empty one, as a page may begin with a variable
	nowhere []int    // for each text a place from which nothing can be copied
}

// packed is one text. It is either whole blocks, or steps in a block with the code of the pack.
type packed struct {
	text   []byte
	blocks string
	sum    uint32
	steps  []packStep
}

// packStep is some bits, and then the distance of a copy from another text, if there is one.
type packStep struct {
	bits         uint64 // literals, and the symbol of the copy's length
	n            uint   // of bits
	literals     uint   // of these, without that symbol
	at, length   int    // the copy is text[at:at+length]
	from, offset int    // the text that it is copied from, 0 for no copy, and the position in it
}

// put appends the lowest k bits of b; the others must be zero. It leaves room for so many more bits in the last step.
func (t *packed) put(b uint64, k, more uint) *packStep {
	last := len(t.steps) - 1
	if last < 0 || t.steps[last].from != 0 || t.steps[last].n+k+more > maxPut {
		t.steps = append(t.steps, packStep{})
		last++
	}
	x := &t.steps[last]
	x.bits |= b << x.n
	x.n += k
	return x
}

func (t *packed) word(x word) { t.put(uint64(x.bits), uint(x.n), 0) }

// maxDistance is the maximum number of bits of a distance.
const maxDistance = maxBits + 13

// code is the words of the symbols: literals, the end of a block, lengths and distances.
type code [distances + 30]word

// word is the bits of one symbol.
type word struct {
	bits uint16
	n    uint8
}

const (
	endOfBlock = 256      // the symbol
	lengths    = 257      // the first symbol of a length
	distances  = 286      // the first symbol of a distance
	maxBits    = 15       // of a word
	window     = 32 << 10 // bytes, the largest distance
	minCopy    = 3        // bytes
	maxCopy    = 257      // bytes; 258 has a symbol of its own
	maxFound   = 64       // places that are looked at for a copy
	nowhere    = -2 * window
)

// minBlocks is the number of bytes above which a text is compressed on its own. A block has a code of its own, in some
// 80 bytes.
const minBlocks = 512

// newPack compresses texts. sample is typical text between them.
func newPack(texts []string, sample []byte) *pack {
	f := newFinder(texts)
	p := &pack{texts: make([]packed, 1), nowhere: slices.Repeat([]int{nowhere}, len(texts)+1)}
	var short []span
	for i, text := range texts {
		t := packed{text: []byte(text), sum: crc32.ChecksumIEEE([]byte(text))}
		if len(text) > minBlocks {
			t.blocks = f.blocks(i, text)
			p.bits += 8 * len(t.blocks)
		} else {
			short = append(short, f.texts[i])
			p.bits += 2 * maxBits * len(text)
		}
		p.texts = append(p.texts, t)
	}
	// All bytes have a word, and all distances: values change them.
	often := counts{}
	for _, b := range sample {
		often[b] += rare
	}
	for i := range often {
		if i < endOfBlock || i >= distances {
			often[i]++
		}
	}
	l, all := f.fit(short, often, 0)
	p.code = l.header(&p.open)
	for k, x := range short {
		i, _ := f.place(x.from)
		f.encode(&p.texts[i], &p.code, x.from, all[k])
	}
	p.bits += maxPut * (len(p.open.steps) + 2) * len(p.texts)
	return p
}

// rare is how much more often a byte is counted than one that only might occur.
const rare = 16

// encode appends tokens to a text of which they are the part at a position.
func (f *finder) encode(t *packed, c *code, from int, tokens []token) {
	own, at := f.place(from)
	for _, k := range tokens {
		if k.back == 0 {
			t.word(c[f.all[from]])
			from, at = from+1, at+1
			continue
		}
		s, extra, n := symbolOf(k.n-minCopy, 2)
		length, size := uint64(c[lengths+s].bits)|extra<<c[lengths+s].n, uint(c[lengths+s].n)+n
		if source, offset := f.place(from - k.back); source == own { // at the same distance on every page
			t.put(length, size, 0)
			s, extra, n = symbolOf(k.back-1, 1)
			t.put(uint64(c[distances+s].bits)|extra<<c[distances+s].n, uint(c[distances+s].n)+n, 0)
		} else {
			x := t.put(length, size, maxDistance)
			x.literals, x.at, x.length, x.from, x.offset = x.n-size, at, k.n, source, offset
		}
		from, at = from+k.n, at+k.n
	}
}

// finder finds the parts that texts can copy from each other.
type finder struct {
	all    []uint16 // the texts, each with barrier after it
	texts  []span   // their places in all
	before []int32  // for each position the one before that begins with the same three bytes, or -1
}

const barrier = 256 // no byte

func newFinder(texts []string) *finder {
	f := &finder{}
	last := map[[minCopy]uint16]int32{}
	for _, text := range texts {
		begin := len(f.all)
		for i := range len(text) {
			f.all = append(f.all, uint16(text[i]))
		}
		f.texts = append(f.texts, span{begin, len(f.all)})
		f.all = append(f.all, barrier)
	}
	f.before = make([]int32, len(f.all))
	for i := range f.all {
		f.before[i] = -1
		if i+minCopy > len(f.all) {
			continue
		}
		key := [minCopy]uint16(f.all[i:])
		if at, ok := last[key]; ok {
			f.before[i] = at
		}
		last[key] = int32(i)
	}
	return f
}

// span is a part of a text, by positions.
type span struct{ from, to int }

// place returns the number of the text at a position, from 1, and the offset in it.
func (f *finder) place(at int) (text, offset int) {
	i, found := slices.BinarySearchFunc(f.texts, at, func(x span, at int) int { return x.from - at })
	if !found {
		i--
	}
	return i + 1, at - f.texts[i].from
}

// token is a literal, or a copy of n bytes.
type token struct{ n, back int } // back is 0 for a literal

// found returns the copies that a part may begin with, from nothing before first: each is longer than the one before,
// and from further away.
func (f *finder) found(x span, first int) (all []token) {
	most, limit := minCopy-1, min(maxCopy, x.to-x.from)
	for tries, q := 0, int(f.before[x.from]); tries < maxFound && most < limit && q >= first && x.from-q <= window; tries,
		q = tries+1, int(f.before[q]) {
		n := 0
		for n < limit && f.all[q+n] == f.all[x.from+n] {
			n++
		}
		if n > most {
			most = n
			all = append(all, token{n, x.from - q})
		}
	}
	return all
}

// counts are how often symbols occur.
type counts [len(code{})]int

// fit divides parts into tokens, so that they are short with the code that suits them and what else is counted. They
// copy nothing from before first.
func (f *finder) fit(parts []span, others counts, first int) (l wordLengths, all [][]token) {
	founds := make([][][]token, len(parts))
	for k, x := range parts {
		for ; x.from < x.to; x.from++ {
			founds[k] = append(founds[k], f.found(x, first))
		}
	}
	for i := range l { // typical
		l[i] = 7 - uint8(i/lengths)*uint8(i/distances)*2
	}
	all = make([][]token, len(parts))
	for range 3 {
		often := others
		often[endOfBlock] += rare
		for k, x := range parts {
			all[k] = f.tokens(x.from, founds[k], &l)
			for _, t := range all[k] {
				if t.back == 0 {
					often[f.all[x.from]] += rare
				} else {
					s, _, _ := symbolOf(t.n-minCopy, 2)
					d, _, _ := symbolOf(t.back-1, 1)
					often[lengths+s] += rare
					often[distances+d] += rare
				}
				x.from += t.n
			}
		}
		copy(l[:distances], newLengths(often[:distances], maxBits))
		copy(l[distances:], newLengths(often[distances:], maxBits))
	}
	return l, all
}

// tokens divides a part into the tokens that are shortest with words of these lengths. A symbol without a word may get
// one.
func (f *finder) tokens(start int, founds [][]token, l *wordLengths) (out []token) {
	bits := func(symbol int) int {
		if l[symbol] == 0 {
			return maxBits - 2
		}
		return int(l[symbol])
	}
	n := len(founds)
	best, first := make([]int, n+1), make([]token, n)
	out = make([]token, 0, n/4)
	for i := n - 1; i >= 0; i-- {
		best[i], first[i] = bits(int(f.all[start+i]))+best[i+1], token{1, 0}
		from := minCopy
		for _, k := range founds[i] {
			d, _, extra := symbolOf(k.back-1, 1)
			far := bits(distances+d) + int(extra)
			for ; from <= k.n; from++ {
				s, _, more := symbolOf(from-minCopy, 2)
				if cost := bits(lengths+s) + int(more) + far + best[i+from]; cost < best[i] {
					best[i], first[i] = cost, token{from, k.back}
				}
			}
		}
	}
	for i := 0; i < n; i += first[i].n {
		out = append(out, first[i])
	}
	return out
}

// blocks compresses a text on its own, into blocks that end with a byte. Scripts get blocks of their own, if that is
// shorter.
func (f *finder) blocks(i int, text string) string {
	whole := f.deflate(i, text)
	if parts := strings.SplitAfter(text, "</script>"); len(parts) > 1 {
		if apart := f.deflate(i, parts...); len(apart) < len(whole) {
			return apart
		}
	}
	return whole
}

// maxBlock is the number of bytes in a block.
const maxBlock = 64 << 10

// deflate compresses the parts of a text, each into blocks of its own.
func (f *finder) deflate(i int, parts ...string) string {
	all := f.texts[i]
	var w bitWriter
	at := all.from
	for _, part := range parts {
		for block := range slices.Chunk([]byte(part), maxBlock) {
			l, tokens := f.fit([]span{{at, at + len(block)}}, counts{}, all.from)
			var t packed
			c := l.header(&t)
			f.encode(&t, &c, at, tokens[0])
			t.word(c[endOfBlock])
			w.reserve(maxPut * len(t.steps))
			w.packed(&c, &t, 0, nil)
			at += len(block)
		}
	}
	w.reserve(64)
	w.pad()
	return string(w.align())
}

// symbolOf returns the symbol of a number in a code whose symbols share k leading bits below the highest, and the extra
// bits.
func symbolOf(x int, k uint) (symbol int, extra uint64, n uint) {
	if x < 2<<k {
		return x, 0, 0
	}
	n = uint(bits.Len(uint(x))) - k - 1
	return int(n<<k) + x>>n, uint64(x) & (1<<n - 1), n
}

// wordLengths are the lengths of the words of all symbols in bits, 0 for none.
type wordLengths [len(code{})]uint8

// newLengths returns the lengths of the shortest words, at most most, for symbols that occur so often (Huffman).
func newLengths(often []int, most uint8) []uint8 {
	type group struct {
		n       int
		symbols []int
	}
	often = slices.Clone(often)
	for {
		out := make([]uint8, len(often))
		var queue []group
		for i, n := range often {
			if n > 0 {
				queue = append(queue, group{n, []int{i}})
			}
		}
		if len(queue) == 1 {
			out[queue[0].symbols[0]] = 1
		}
		for len(queue) > 1 {
			slices.SortStableFunc(queue, func(a, b group) int { return b.n - a.n })
			last := len(queue) - 1
			a, b := queue[last-1], queue[last]
			both := group{a.n + b.n, slices.Concat(a.symbols, b.symbols)}
			for _, symbol := range both.symbols {
				out[symbol]++
			}
			queue = append(queue[:last-1], both)
		}
		if slices.Max(out) <= most {
			return out
		}
		for i, n := range often { // flatter
			often[i] = (n + 1) / 2
		}
	}
}

// headerOrder is the order in which a block header lists the lengths of the code for its other lengths.
var headerOrder = [19]int{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

// header appends the header of a block, not the last, and returns its code.
func (l *wordLengths) header(t *packed) (c code) {
	copy(c[:distances], words(l[:distances]))
	copy(c[distances:], words(l[distances:]))
	used := func(list []uint8, least int) []uint8 { // without the zeros at the end
		for len(list) > least && list[len(list)-1] == 0 {
			list = list[:len(list)-1]
		}
		return list
	}
	literals, far := used(l[:distances], lengths), used(l[distances:], 1)
	list := slices.Concat(literals, far)
	type item struct {
		symbol, extra uint8
		bits          uint
	}
	var items []item
	often := make([]int, len(headerOrder))
	for i := 0; i < len(list); {
		n := 1
		for i+n < len(list) && list[i+n] == list[i] {
			n++
		}
		x := item{symbol: list[i]}
		switch {
		case list[i] == 0 && n >= 11:
			n = min(n, 138)
			x = item{18, uint8(n - 11), 7}
		case list[i] == 0 && n >= 3:
			x = item{17, uint8(n - 3), 3}
		case i > 0 && list[i-1] == list[i] && n >= 3:
			n = min(n, 6)
			x = item{16, uint8(n - 3), 2}
		default:
			n = 1
		}
		items = append(items, x)
		often[x.symbol]++
		i += n
	}
	lens := newLengths(often, 7)
	count := len(headerOrder)
	for count > 4 && lens[headerOrder[count-1]] == 0 {
		count--
	}
	t.put(uint64(2<<1|(len(literals)-257)<<3|(len(far)-1)<<8|(count-4)<<13), 17, 0)
	for _, s := range headerOrder[:count] {
		t.put(uint64(lens[s]), 3, 0)
	}
	of := words(lens)
	for _, x := range items {
		t.word(of[x.symbol])
		t.put(uint64(x.extra), x.bits, 0)
	}
	return c
}

// words returns the words of given lengths in DEFLATE order.
func words(lengths []uint8) []word {
	out, next := make([]word, len(lengths)), uint16(0)
	for n := uint8(1); n <= maxBits; n++ {
		for i, l := range lengths {
			if l == n {
				out[i] = word{bits.Reverse16(next) >> (16 - n), n}
				next++
			}
		}
		next <<= 1
	}
	return out
}

// bitWriter writes bits, lowest first. reserve makes space for them.
type bitWriter struct {
	dst []byte // written up to at
	at  int
	acc uint64
	n   uint // bits in acc, fewer than 8
}

// reserve makes space for a number of bits, and for the overrun of put.
func (w *bitWriter) reserve(bits int) {
	if need := w.at + bits/8 + 16; need > len(w.dst) {
		w.dst = slices.Grow(w.dst[:w.at], need-w.at)
		w.dst = w.dst[:cap(w.dst)]
	}
}

// put writes the lowest k bits of b, at most maxPut. The other bits must be zero.
func (w *bitWriter) put(b uint64, k uint) {
	w.at, w.acc, w.n = put(w.dst, w.at, w.acc, w.n, b, k)
}

// maxPut is the maximum number of bits of a put. Used as a mask, it tells the compiler the range of shifts.
const maxPut = 56

// put is bitWriter.put for a loop, which keeps at, acc and n in registers.
func put(dst []byte, at int, acc uint64, n uint, b uint64, k uint) (int, uint64, uint) {
	acc |= b << (n & 7)
	n += k
	binary.LittleEndian.PutUint64(dst[at:], acc)
	return at + int(n/8), acc >> (n & maxPut), n % 8
}

func (w *bitWriter) word(x word) { w.put(uint64(x.bits), uint(x.n)) }

// pad ends a byte by an empty stored block.
func (w *bitWriter) pad() {
	w.put(0, 3)
	w.align()
	w.bytes("\x00\x00\xff\xff")
}

// literals writes bytes as literals.
func (w *bitWriter) literals(c *code, b []byte) {
	dst, at, acc, n := w.dst, w.at, w.acc, w.n
	for ; len(b) >= 3; b = b[3:] { // at most 45 bits
		x, y, z := c[b[0]], c[b[1]], c[b[2]]
		two := uint(x.n + y.n)
		at, acc, n = put(dst, at, acc, n, uint64(x.bits)|uint64(y.bits)<<(x.n&15)|uint64(z.bits)<<(two&31), two+uint(z.n))
	}
	for _, x := range b {
		at, acc, n = put(dst, at, acc, n, uint64(c[x].bits), uint(c[x].n))
	}
	w.at, w.acc, w.n = at, acc, n
}

// packed writes the steps of a text at a place of a page, with the places of the other texts. What it copies from may be
// too far away, or not on this page.
func (w *bitWriter) packed(c *code, t *packed, place int, places []int) {
	for i := range t.steps {
		x := &t.steps[i]
		b, k := x.bits, x.n
		if x.from != 0 {
			back := place + x.at - places[x.from] - x.offset
			if back > window {
				w.put(b&(1<<x.literals-1), x.literals)
				w.literals(c, t.text[x.at:x.at+x.length])
				continue
			}
			s, extra, more := symbolOf(back-1, 1)
			d := c[distances+s]
			b |= (uint64(d.bits) | extra<<(d.n&15)) << (k & 31)
			k += uint(d.n) + more
		}
		w.put(b, k)
	}
}

// bytes writes whole bytes after a whole byte.
func (w *bitWriter) bytes(b string) {
	w.at += copy(w.dst[w.at:], b)
}

// align pads the last byte and returns all bytes.
func (w *bitWriter) align() []byte {
	if w.n > 0 {
		w.put(0, 8-w.n)
	}
	return w.dst[:w.at]
}
