package page

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// stencil is the common form of all built-in pages that differ only in digits: compressed, with a 0 for each digit.
// All digits have words of the same length, so each has a fixed position, and a page is a copy with the bits of its
// digits changed. It is immutable.
type stencil struct {
	common common
	key    []uint64 // the per-visitor values, as in Packer.values
	tail   []byte   // the compressed page after pack.head
	groups []group
	digits []digit
}

// group is a group of digits with their bits in eight bytes.
type group struct{ at, end int32 } // at is a position in tail; end is the index after its last digit

// digit is the position of a digit of the values in a page.
type digit struct {
	at    int32  // in the values
	from  uint16 // number of bytes of the page after it: selects its digitSums
	shift uint8  // of its bits within the group
}

// common is all shared variables of a page.
type common struct {
	page                           *Page
	lang                           Lang
	state                          State
	known, counting, longer        bool
	method, pausedBy, lost, stage  string
	room, message, back, drawnFrom string
	kept                           time.Duration
}

func newCommon(p *Page, v *Visitor) common {
	return common{
		page: p, lang: v.Lang, state: v.State(), known: v.known(), counting: v.counting(), longer: v.longer(),
		method: v.method(), pausedBy: v.shownPause(), lost: v.lost(), stage: v.stage(),
		room: v.Room, message: v.Message, back: v.Back, drawnFrom: v.Event.Draw.Commit, kept: v.Grace,
	}
}

// ownVariables are the variables of the page that belong to one visitor, or change with time.
var ownVariables = strings.Fields("title refresh bar ahead wait starts total number waited joined joined-iso updated updated-iso")

// hasStencils reports whether stencils are used for v. In languages with other digits, and with the receipt of a
// draw, too few pages differ only in 0 to 9. Operator text is part of every stencil, so it must be short.
func hasStencils(p *Page, v *Visitor) bool {
	return catalogs[v.Lang].digits[1] == "1" && v.stage() != DrawPlaced && len(p.brand)+len(v.Message) <= 2<<10 && packs[v.Lang]().even
}

// stencilSlots are the current stencils, about 6 MiB at most. A room has about a hundred. Each is in one of two
// slots chosen by a hash.
var stencilSlots [1024]stencilSlot

// stencilSlot holds one stencil. It is safe for concurrent use.
type stencilSlot struct {
	stencil atomic.Pointer[stencil]
	used    atomic.Int64  // second of its last use
	missed  atomic.Uint64 // hash of the last miss for this slot
}

// unused is after how many idle seconds a stencil may be replaced.
const unused = 2

// findStencil returns the stencil for p.masked and is, which have this hash, or nil. It makes one on the second
// miss if one of the slots is free: a page used once is not worth it.
func (p *Packer) findStencil(hash uint64, is *common, v *Visitor) *stencil {
	var free *stencilSlot
	second := v.Now.Second()
	for _, i := range [2]uint64{hash, hash >> 32} {
		s := &stencilSlots[i%uint64(len(stencilSlots))]
		x, used := s.stencil.Load(), s.used.Load()
		if x != nil && slices.Equal(x.key, p.masked) && x.common == *is {
			if used != second {
				s.used.Store(second)
			}
			return x
		}
		if free == nil && (x == nil || max(second-used, used-second) >= unused) {
			free = s
		}
	}
	if free == nil || free.missed.Swap(hash) != hash {
		return nil
	}
	x := newStencil(is, p, v)
	free.used.Store(second)
	free.stencil.Store(x)
	return x
}

// stencil appends the page for v to dst by a stencil. It returns false without a stencil.
func (p *Packer) stencil(dst []byte, page *Page, v *Visitor) ([]byte, bool) {
	p.values = p.values[:0]
	c := catalogs[v.Lang]
	for _, f := range owns[v.Lang] {
		p.values = append(f(p.values, v, c, page), 0)
	}
	is := newCommon(page, v)
	hash := uint64(is.lang)<<8 | uint64(is.state)
	for i := range len(is.room) {
		hash = (hash ^ uint64(is.room[i])) * hashFactor
	}
	hash = p.mask(hash)
	x := p.findStencil(hash, &is, v)
	if x == nil || len(x.tail) == 0 {
		return dst, false
	}
	t := packs[v.Lang]()
	dst = append(append(dst, t.head...), x.tail...)
	tail := dst[len(dst)-len(x.tail):]
	end := tail[len(tail)-8:]
	sum, sums, at := binary.LittleEndian.Uint32(end), digitSums(), int32(0)
	for _, g := range x.groups {
		var changed uint64
		for ; at < g.end; at++ {
			d := &x.digits[at]
			n := p.values[d.at] - '0'
			changed ^= uint64(t.digits[n]) << (d.shift & 63)
			sum ^= sums[d.from][n]
		}
		b := tail[g.at : g.at+8]
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)^changed)
	}
	binary.LittleEndian.PutUint32(end, sum)
	return dst, true
}

const hashFactor = 0x9e3779b97f4a7c15 // of Fibonacci hashing

// mask sets p.masked to the values with 0 for every digit, eight bytes a word, and returns its hash.
func (p *Packer) mask(hash uint64) uint64 {
	const low, each, high = 0x7f7f7f7f7f7f7f7f, 0x0101010101010101, 0x8080808080808080
	for len(p.values)%8 != 0 {
		p.values = append(p.values, 0)
	}
	p.masked = p.masked[:0]
	for b := p.values; len(b) >= 8; b = b[8:] {
		x := binary.LittleEndian.Uint64(b)
		y := x ^ '0'*each                               // the value of a digit
		isDigit := ^(y&low + (0x80-10)*each | y) & high // greater bytes have, or get, the highest bit
		x &^= isDigit >> 7 * 0xf
		p.masked = append(p.masked, x)
		hash = (hash ^ x) * hashFactor
		hash ^= hash >> 32
	}
	return hash
}

// newStencil makes the stencil for p.masked. It has no tail if more bytes follow a digit than there are sums for.
func newStencil(is *common, p *Packer, v *Visitor) *stencil {
	x := &stencil{common: *is, key: slices.Clone(p.masked)}
	x.common.room, x.common.message, x.common.back = strings.Clone(is.room), strings.Clone(is.message), strings.Clone(is.back)
	var values []byte
	for _, w := range x.key {
		values = binary.LittleEndian.AppendUint64(values, w)
	}
	var out Packer
	t := packs[v.Lang]()
	plain, at := out.start(nil, t), int32(0)
	var places, bits []int
	for i := range compiled[v.Lang] {
		part := &compiled[v.Lang][i]
		if part.first >= 0 {
			plain = out.text(plain, part.first)
		}
		switch {
		case part.own:
			for ; values[at] != 0; at++ {
				if values[at] == '0' {
					x.digits = append(x.digits, digit{at: at})
					places, bits = append(places, out.size), append(bits, 8*(out.w.at-len(t.head))+int(out.w.n))
				}
				plain = out.variable(append(plain, values[at]))
			}
			at++
		case part.variable != nil:
			plain = out.variable(part.variable(plain, v, catalogs[v.Lang], is.page))
		}
	}
	tail := out.end(plain)[len(t.head):]
	for i := range places {
		from := out.size - places[i] - 1
		if from >= maxFollow {
			x.digits = nil
			return x
		}
		x.digits[i].from = uint16(from)
	}
	x.tail = slices.Clip(tail)
	x.group(bits, int(t.code.lit['0'].n))
	return x
}

// group groups digits at these bit positions, each with length bits.
func (x *stencil) group(bits []int, length int) {
	for i, bit := range bits {
		last := len(x.groups) - 1
		if last < 0 || bit+length > 8*int(x.groups[last].at)+64 {
			x.groups = append(x.groups, group{at: int32(bit / 8)})
			last++
		}
		x.groups[last].end = int32(i + 1)
		x.digits[i].shift = uint8(bit - 8*int(x.groups[last].at))
	}
}

// maxFollow bounds the bytes after the first digit of a page made by a stencil: about 3,000, and the operator's
// message twice.
const maxFollow = 8 << 10

// digitSums are the changes of a page's checksum by a digit in place of 0, by the number of bytes after it.
var digitSums = sync.OnceValue(func() *[maxFollow][10]uint32 {
	out := new([maxFollow][10]uint32)
	for n := range out[0] {
		sum := crc32.IEEETable[n]
		for i := range out {
			out[i][n] = sum
			sum = crc32.IEEETable[sum&0xff] ^ sum>>8
		}
	}
	return out
})
