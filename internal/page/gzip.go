package page

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"slices"
)

// Packer writes a page with gzip. The zero value is ready. One goroutine at a time uses it, for any number of
// pages.
//
// It does no compression per visitor. The fixed texts of a page are compressed once; a visitor's values are written
// as literals of the same code and never matched against other data. So the length of the result reveals only their
// length.
type Packer struct {
	pack   *pack
	w      bitWriter
	starts []int // start of each text in the output
	size   int   // bytes written, uncompressed
	sum    uint32
	plain  []byte // buffer of output that is not in sum yet: short pieces are added at once
	packed int    // bytes of it already written compressed

	values []byte   // a visitor's values outside of the stencil, with a zero byte after each
	masked []uint64 // values with 0 for every digit
}

// gzipHead is a gzip header: no name, no time, any system.
var gzipHead = [10]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff}

// start starts a page after dst. It returns the buffer for a visitor's values. Each of [Packer.text],
// [Packer.variable] and [Packer.end] takes the buffer and returns it longer or emptied.
func (p *Packer) start(dst []byte, t *pack) (plain []byte) {
	p.pack, p.size, p.sum, p.packed = t, 0, 0, 0
	p.starts = slices.Grow(p.starts[:0], len(t.texts))[:len(t.texts)]
	p.w = newBitWriter(append(dst, t.head...))
	p.w.reserve(t.rest.bits())
	p.w.run(&t.rest)
	if t.opens() {
		return p.recordText(p.plain[:0], 0)
	}
	return p.plain[:0]
}

// text writes one of the texts.
func (p *Packer) text(plain []byte, i int) []byte {
	if p.pack.texts[i].opens { // already written
		return plain
	}
	t := &p.pack.texts[i]
	p.w.reserve(t.bits)
	code := &p.pack.code
	dst, at, acc, n := p.w.dst, p.w.at, p.w.acc, p.w.n
	for k := range t.ops {
		o := &t.ops[k]
		dist := p.size + int(o.at) - p.starts[o.of] - int(o.from)
		if o.short.n > 0 && dist <= maxReach {
			symbol, extra, more := distSymbol(dist)
			x := code.dist[symbol]
			long := uint(o.short.n) + uint(x.n)
			at, acc, n = put(dst, at, acc, n, uint64(o.short.bits)|uint64(x.bits)<<(o.short.n&31)|uint64(extra)<<(long&63), long+more)
			continue
		}
		at, acc, n = putRun(dst, at, acc, n, &o.bits)
		if dist > maxReach { // the text between is long
			p.w.at, p.w.acc, p.w.n = at, acc, n
			p.w.literals(code, t.text[o.at:o.end])
			p.w.reserve(t.bits)
			dst, at, acc, n = p.w.dst, p.w.at, p.w.acc, p.w.n
			continue
		}
		symbol, extra, more := distSymbol(dist)
		x := code.dist[symbol]
		long := uint(o.length.n) + uint(x.n)
		at, acc, n = put(dst, at, acc, n, uint64(o.length.bits)|uint64(x.bits)<<o.length.n|uint64(extra)<<long, long+more)
	}
	p.w.at, p.w.acc, p.w.n = at, acc, n
	p.w.run(&t.tail)
	return p.recordText(plain, i)
}

// recordText records a written text.
func (p *Packer) recordText(plain []byte, i int) []byte {
	t := &p.pack.texts[i]
	p.starts[i] = p.size
	p.size += len(t.text)
	if t.sum.over == nil {
		plain = append(plain, t.text...)
		p.packed = len(plain)
		return plain
	}
	p.sum = t.sum.after(crc32.Update(p.sum, crc32.IEEETable, plain))
	p.packed = 0
	return plain[:0]
}

// variable writes the bytes appended to plain.
func (p *Packer) variable(plain []byte) []byte {
	if b := plain[p.packed:]; len(b) > 0 {
		p.w.literals(&p.pack.code, b)
		p.size += len(b)
		p.packed = len(plain)
	}
	return plain
}

// end ends the page and returns it.
func (p *Packer) end(plain []byte) []byte {
	p.w.reserve(maxBits)
	p.w.word(p.pack.code.lit[endOfBlock])
	dst := p.w.flush()
	p.w, p.plain = bitWriter{}, plain
	p.sum = crc32.Update(p.sum, crc32.IEEETable, plain)
	dst = binary.LittleEndian.AppendUint32(dst, p.sum)
	return binary.LittleEndian.AppendUint32(dst, uint32(p.size))
}

// bitWriter writes bits, lowest first.
type bitWriter struct {
	dst []byte // written up to at
	at  int
	acc uint64
	n   uint // bits in acc, fewer than 8
}

func newBitWriter(dst []byte) bitWriter { return bitWriter{dst: dst, at: len(dst)} }

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

// literals writes bytes as literals.
func (w *bitWriter) literals(c *code, b []byte) {
	w.reserve(maxBits * len(b))
	dst, at, acc, n := w.dst, w.at, w.acc, w.n
	for ; len(b) >= 3; b = b[3:] { // at most 45 bits
		x, y, z := c.lit[b[0]], c.lit[b[1]], c.lit[b[2]]
		two := uint(x.n + y.n)
		at, acc, n = put(dst, at, acc, n, uint64(x.bits)|uint64(y.bits)<<(x.n&15)|uint64(z.bits)<<(two&31), two+uint(z.n))
	}
	for _, x := range b {
		l := c.lit[x]
		at, acc, n = put(dst, at, acc, n, uint64(l.bits), uint(l.n))
	}
	w.at, w.acc, w.n = at, acc, n
}

// copy writes a copy of the bytes dist before.
func (w *bitWriter) copy(c *code, length *word32, dist int) {
	symbol, extra, n := distSymbol(dist)
	x := c.dist[symbol]
	w.put(uint64(length.bits)|uint64(x.bits)<<length.n|uint64(extra)<<(uint(length.n)+uint(x.n)), uint(length.n)+uint(x.n)+n)
}

// run writes a run of bits.
func (w *bitWriter) run(r *run) {
	w.at, w.acc, w.n = putRun(w.dst, w.at, w.acc, w.n, r)
}

// putRun is bitWriter.run with its state in registers, like put.
func putRun(dst []byte, at int, acc uint64, n uint, r *run) (int, uint64, uint) {
	for _, x := range r.words {
		binary.LittleEndian.PutUint64(dst[at:], acc|x<<n)
		acc = x >> (64 - n)
		at += 8
	}
	if r.n <= maxPut {
		return put(dst, at, acc, n, r.last, r.n)
	}
	at, acc, n = put(dst, at, acc, n, r.last&math.MaxUint32, 32)
	return put(dst, at, acc, n, r.last>>32, r.n-32)
}

// take returns the run written since the last call.
func (w *bitWriter) take() run {
	b := w.dst[:w.at]
	r := run{n: w.n}
	for ; len(b) >= 8; b = b[8:] {
		r.words = append(r.words, binary.LittleEndian.Uint64(b))
	}
	for i, x := range b {
		r.last |= uint64(x) << (8 * i)
	}
	r.last |= w.acc << (8 * len(b))
	r.n += 8 * uint(len(b))
	*w = bitWriter{dst: w.dst}
	return r
}

// bytes returns the output since the last call: whole bytes, and the bits of one more.
func (w *bitWriter) bytes() ([]byte, run) {
	b := slices.Clone(w.dst[:w.at])
	r := run{last: w.acc, n: w.n}
	*w = bitWriter{dst: w.dst}
	return b, r
}

// flush pads the last byte and returns all bytes.
func (w *bitWriter) flush() []byte {
	if w.n > 0 {
		w.put(0, 8-w.n)
	}
	return w.dst[:w.at]
}

// sum is the checksum of a text (CRC-32), prepared for appending to other text. CRC-32 is linear: the text before
// contributes a term that depends on its own sum and on the length of this text. The zero value is unprepared.
type sum struct {
	own  uint32
	over *[4][256]uint32 // contribution of each byte of the sum before
}

// newSum returns the sum of a text. It leaves a short one unprepared, which is as fast to read.
func newSum(text []byte) sum {
	if len(text) < 1<<10 {
		return sum{}
	}
	raw := func(before uint32, b []byte) uint32 { return ^crc32.Update(^before, crc32.IEEETable, b) }
	s := sum{own: raw(0, text), over: new([4][256]uint32)}
	zeros := make([]byte, len(text))
	for bit := range 32 {
		added := raw(1<<bit, zeros)
		for b := range 256 {
			if b>>(bit%8)&1 == 1 {
				s.over[bit/8][b] ^= added
			}
		}
	}
	return s
}

// after returns the checksum of the text appended to data with the sum before.
func (s *sum) after(before uint32) uint32 {
	before = ^before
	return ^(s.own ^ s.over[0][byte(before)] ^ s.over[1][byte(before>>8)] ^ s.over[2][byte(before>>16)] ^ s.over[3][before>>24])
}
