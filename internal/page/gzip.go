package page

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// Packer writes a page with gzip. The zero value is ready. One goroutine at a time uses it, for any number of
// pages.
//
// It does no compression per visitor. The fixed texts of a page are compressed once; a visitor's values are written
// as literals and never matched against other data. So the length of the result reveals only their length.
type Packer struct {
	pack  *pack
	plain []byte // buffer: the page without the texts that are blocks
	marks []mark
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
	dst = append(dst, gzipHead...)
	w := bitWriter{dst: dst, at: len(dst)}
	w.reserve(maxBits*len(plain) + p.pack.bits)
	open, size := false, len(plain)
	sum, at := uint32(0), 0 // the checksum is that of the page before plain[at]
	for i, m := range p.marks[:len(p.marks)-1] {
		values := plain[m.at:p.marks[i+1].at]
		t := &p.pack.texts[m.text]
		if t.blocks != "" {
			if open { // pad to bytes by an empty stored block
				open = false
				w.word(p.pack.code[endOfBlock])
				w.put(0, 3)
				w.align()
				w.bytes("\x00\x00\xff\xff")
			}
			w.bytes(t.blocks)
			if size == len(plain) && m.at == 0 {
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
			w.run(&p.pack.open)
		}
		if t.blocks == "" {
			w.run(&t.literals)
			values = values[len(t.text):]
		}
		w.literals(&p.pack.code, values)
	}
	if open {
		w.word(p.pack.code[endOfBlock])
	}
	w.put(1|1<<1, 3+7) // the last block, empty
	dst = binary.LittleEndian.AppendUint32(w.align(), crc32.Update(sum, crc32.IEEETable, plain[at:]))
	return binary.LittleEndian.AppendUint32(dst, uint32(size))
}

// pack is the fixed texts of a page, compressed. It is immutable.
type pack struct {
	code  code
	open  run      // the header of a block of literals
	bits  int      // upper bound, without literals
	texts []packed // after an empty one, as a page may begin with a variable
}

// packed is one text. It is either whole blocks, or literals if these are about as short.
type packed struct {
	text     []byte
	blocks   string
	sum      uint32
	literals run
}

// code is the encoding of literals.
type code [endOfBlock + 1]word

// word is the bits of one symbol.
type word struct {
	bits uint16
	n    uint8
}

const (
	endOfBlock = 256 // the symbol
	maxBits    = 15  // of a word
)

// newPack compresses texts. sample is typical text between them.
func newPack(texts []string, sample []byte) *pack {
	p := &pack{texts: make([]packed, 1)}
	var blocks []string
	for _, text := range texts {
		b := ""
		if len(text) > minBlocks {
			b = deflate(text)
		} else {
			sample = append(sample, text...)
		}
		blocks = append(blocks, b)
	}
	p.open, p.code = newCode(sample)
	p.bits = p.open.bits() + 64
	for i, text := range texts {
		t := packed{text: []byte(text), blocks: blocks[i], sum: crc32.ChecksumIEEE([]byte(text))}
		if p.bits += 8*len(t.blocks) + p.open.bits() + 64; t.blocks == "" {
			var w bitWriter
			w.reserve(maxBits * len(text))
			w.literals(&p.code, t.text)
			t.literals = w.take()
		}
		p.texts = append(p.texts, t)
	}
	return p
}

// minBlocks is the number of bytes above which a text is compressed on its own. A block has a code of its own, in some
// 80 bytes.
const minBlocks = 512

// deflate compresses a text into blocks that end with a byte. Scripts get blocks of their own, if that is shorter.
func deflate(text string) string {
	whole := deflateParts(text)
	if parts := strings.SplitAfter(text, "</script>"); len(parts) > 1 {
		if apart := deflateParts(parts...); len(apart) < len(whole) {
			return apart
		}
	}
	return whole
}

// deflateParts compresses a text, each part into blocks of its own.
func deflateParts(parts ...string) string {
	var b bytes.Buffer
	w := must(flate.NewWriter(&b, flate.BestCompression))
	for _, part := range parts {
		must(w.Write([]byte(part)))
		must(0, w.Flush())
	}
	return b.String()
}

// newCode returns a code that has a word for every byte and suits texts like sample, with the block header that
// declares it.
func newCode(sample []byte) (header run, c code) {
	const most, times = 5 << 10, 12 // so that all fits one block, in which bytes that the sample lacks are rare
	all := bytes.Repeat(sample[:min(len(sample), most)], times)
	for b := range 256 {
		all = append(all, byte(b))
	}
	var b bytes.Buffer
	w := must(flate.NewWriter(&b, flate.HuffmanOnly))
	must(w.Write(all))
	must(0, w.Close())
	r := bitReader{b: b.Bytes()}
	if r.take(3) != dynamic { // the sample is noise
		return newCode([]byte(pageHTML))
	}
	symbols, distances := 257+r.take(5), 1+r.take(5)
	var lengths [19]uint8
	for _, s := range headerOrder[:4+r.take(4)] {
		lengths[s] = uint8(r.take(3))
	}
	var list []uint8
	for of := words(lengths[:]); len(list) < symbols+distances; {
		switch s := r.symbol(of); s {
		case 16:
			list = append(list, bytes.Repeat(list[len(list)-1:], 3+r.take(2))...)
		case 17:
			list = append(list, make([]uint8, 3+r.take(3))...)
		case 18:
			list = append(list, make([]uint8, 11+r.take(7))...)
		default:
			list = append(list, uint8(s))
		}
	}
	return r.taken(), code(words(list[:len(c)]))
}

const dynamic = 0 | 2<<1 // a block with a code of its own, not the last

// headerOrder is the order in which a block header lists the lengths of the code for its other lengths.
var headerOrder = [19]int{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

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

// bitReader reads bits, lowest first.
type bitReader struct {
	b  []byte
	at int // in bits
}

func (r *bitReader) take(n int) (x int) {
	for i := range n {
		x |= int(r.b[r.at/8]>>(r.at%8)&1) << i
		r.at++
	}
	return x
}

// symbol reads one of the words.
func (r *bitReader) symbol(words []word) int {
	var x word
	for {
		x.bits |= uint16(r.take(1)) << x.n
		x.n++
		if i := slices.Index(words, x); i >= 0 {
			return i
		}
	}
}

// taken returns all bits read.
func (r *bitReader) taken() run {
	var w bitWriter
	n := r.at
	for r.at = 0; r.at < n; {
		k := min(8, n-r.at)
		w.reserve(k)
		w.put(uint64(r.take(k)), uint(k))
	}
	return w.take()
}

// must returns x. Nothing here can fail: it is written to memory.
func must[T any](x T, err error) T {
	if err != nil {
		panic("waiting page: " + err.Error())
	}
	return x
}

// run is a run of bits, the first in the lowest bit of the first word.
type run struct {
	words []uint64
	last  uint64 // its lowest n bits follow; the others are zero
	n     uint   // fewer than 64
}

// bits returns the number of bits.
func (r *run) bits() int { return 64*len(r.words) + int(r.n) }

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

// run writes a run of bits.
func (w *bitWriter) run(r *run) {
	dst, at, acc, n := w.dst, w.at, w.acc, w.n
	for _, x := range r.words {
		binary.LittleEndian.PutUint64(dst[at:], acc|x<<n)
		acc = x >> (64 - n)
		at += 8
	}
	last, left := r.last, r.n
	if left > maxPut {
		at, acc, n = put(dst, at, acc, n, last&math.MaxUint32, 32)
		last, left = last>>32, left-32
	}
	w.at, w.acc, w.n = put(dst, at, acc, n, last, left)
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
